package fuse

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// A process whose state cannot be read for lack of a descriptor does not count as being killed: its
// access continues.
func TestKilledWithoutDescriptors(t *testing.T) {
	thread := uint32(os.Getpid())
	vfstest.LimitDescriptors(t, 16)
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, unix.EMFILE) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	if mounts.Killed(thread) {
		t.Error("it is thought to be killed")
	}
}
