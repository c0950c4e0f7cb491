package scrub

import (
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Disk has the settings of a program's folders on disk. The tags are the users' documentation.
type Disk struct {
	// VerifyEvery is 0 for 24 h.
	VerifyEvery flags.VerifyEvery `tuning:"verify_every" group:"Disk" unit:"TIME" default:"24h" doc:"Time for which a verification of a blob is valid unless its file changes; 0 verifies after each use"`
	Scrub       Schedule          `settings:"inline"`
	// SpreadFolders is false to keep folders close together, or for comparisons.
	SpreadFolders bool `tuning:"spread_folders" unit:"true|false" default:"true" doc:"Spreads folders over the disk on ext4 without a journal, so that files removed from one do not slow down the others"`
}

// Spread makes the file system place folders in dir far from each other, if that is faster and the
// settings want it. It affects only speed.
func (d *Disk) Spread(dir string, log *zap.Logger) {
	if !d.SpreadFolders {
		return
	}
	if err := folder.Spread(dir); err != nil {
		log.Debug("folders are not spread over the disk, which may be slower", zap.Error(err))
	}
}
