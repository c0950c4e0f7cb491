package scratch

import (
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// DisksOf returns the Disks that folders are on. If several folders are on one disk, its growth counts
// for each of them: that is more than there is, and never less.
func DisksOf(folders ...string) (d Disks) {
	for i, name := range folders {
		var st unix.Statfs_t
		if unix.Statfs(name, &st) != nil || !prompt(&st) {
			return Disks{}
		}
		free := int64(st.Bavail) * st.Bsize
		if i == 0 || free < d.Free {
			d.Free = free
		}
		d.Used += int64(st.Blocks-st.Bfree)*st.Bsize + int64(st.Files-st.Ffree)*folder.EntryBytes
	}
	d.Prompt = true
	return d
}

// prompt reports whether a file system's usage includes files, and bytes that are written but not
// yet on the disk. btrfs and ZFS count only what they have committed, and network file systems only
// when asked again.
func prompt(st *unix.Statfs_t) bool {
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return st.Blocks > 0 && st.Files > 0
	}
	return false
}
