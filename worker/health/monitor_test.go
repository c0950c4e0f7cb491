package health

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/disk"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// smallDisk returns a monitor of a small disk, with its store elsewhere, and the folder of the
// disk.
func smallDisk(t *testing.T) (*Monitor, string) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mounting a disk needs root")
		}
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	check(t, unix.Mount("small", dir, "tmpfs", 0, "size=4M"))
	t.Cleanup(func() { check(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	g, err := New(filepath.Join(dir, "work"), store, nil, nil, zap.NewNop())
	check(t, err)
	return g, dir
}

// TestFullDisk: a call for work ends when the disk becomes full, and actions that ran at that time
// learn of it.
func TestFullDisk(t *testing.T) {
	g, dir := smallDisk(t)
	before := g.Begin()
	if before.WasShort() || g.Rests() != nil || before.Free() == 0 {
		t.Errorf("an empty disk has %d bytes free and is full", before.Free())
	}
	call, done := g.Calling(t.Context())
	defer done()
	ballast := filepath.Join(dir, "ballast")
	check(t, os.WriteFile(ballast, make([]byte, 4<<20-16<<10), 0o600))
	g.look()
	if !errors.Is(context.Cause(call), ErrUnfit) {
		t.Errorf("the call goes on: %v", context.Cause(call))
	}
	if late, done := g.Calling(t.Context()); !errors.Is(context.Cause(late), ErrUnfit) {
		t.Error("another call is made")
	} else {
		done()
	}
	roomy, during := g.Rests(), g.Begin()
	if roomy == nil {
		t.Fatal("the disk is not full")
	}
	check(t, os.Remove(ballast))
	g.look()
	select {
	case <-roomy:
	default:
		t.Error("nobody is told that there is room again")
	}
	for name, p := range map[string]Period{"before": before, "during": during} {
		if !p.WasShort() {
			t.Errorf("who began %s does not know that it was full", name)
		}
	}
	if after := g.Begin(); after.WasShort() {
		t.Error("who began afterwards takes it for full")
	}
}

// TestReadOnlyDisk: a disk that cannot be written has no free space.
func TestReadOnlyDisk(t *testing.T) {
	g, dir := smallDisk(t)
	check(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	g.look()
	if g.Rests() == nil {
		t.Error("a read-only disk has room")
	}
	check(t, unix.Mount("", dir, "", unix.MS_REMOUNT, ""))
	g.look()
	if g.Rests() != nil {
		t.Error("it is full for ever")
	}
}
