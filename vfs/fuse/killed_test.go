package fuse

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// A process of which nothing can be learned, for want of a descriptor, is not one that
// is being killed: its access goes on.
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
