package vfs

import (
	"errors"
	"hash/maphash"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newSeed() maphash.Seed { return maphash.MakeSeed() }

// urgent is a signal that a Go program takes without noticing.
const urgent = unix.SIGURG

func isEIO(err error) bool { return errors.Is(err, unix.EIO) }

// waitUntil polls what the kernel or another process does in its own time.
func waitUntil(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
	}
}
