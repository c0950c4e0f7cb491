package folder

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// TestNoPlaceForDamagedFolders: where the disk tells of no name whether it is free, a store does
// not open, and nothing of it is lost.
func TestNoPlaceForDamagedFolders(t *testing.T) {
	f := &Folder{Dir: t.TempDir(), log: zap.NewNop()}
	group := strings.Repeat("g", 255-len("damaged-")) // with which any longer name is an error
	for _, shard := range []string{"00", "01"} {
		if err := os.MkdirAll(filepath.Join(f.Dir, group, shard), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.GiveUp(group, []string{"00"}, unix.EUCLEAN); !errors.Is(err, unix.EUCLEAN) || !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("error %v", err)
	}
	if shards, err := f.Shards(group); err != nil || len(shards) != 2 {
		t.Errorf("%d folders are left, %v", len(shards), err)
	}
}
