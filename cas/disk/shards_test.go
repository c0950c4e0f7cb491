package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestNoPlaceForDamagedFolders: where the disk tells of no name whether it is free, a store does not open, and nothing of it is lost.
func TestNoPlaceForDamagedFolders(t *testing.T) {
	f := &files[digest.Digest]{dir: t.TempDir(), log: zap.NewNop()}
	group := strings.Repeat("g", 255-len("damaged-")) // with which any longer name is an error
	for _, shard := range []string{"00", "01"} {
		if err := os.MkdirAll(filepath.Join(f.dir, group, shard), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.giveUp(group, []string{"00"}, unix.EUCLEAN); !errors.Is(err, unix.EUCLEAN) || !errors.Is(err, unix.ENAMETOOLONG) {
		t.Errorf("error %v", err)
	}
	if shards, err := f.shardsOf(group); err != nil || len(shards) != 2 {
		t.Errorf("%d folders are left, %v", len(shards), err)
	}
}
