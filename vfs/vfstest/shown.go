package vfstest

import (
	"errors"
	"os"
	"testing"

	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// Shown fails the test if err is not nil. Except in CI, it skips the test if the machine refuses
// the mount.
func Shown(t testing.TB, err error) {
	t.Helper()
	if refused := (*mounts.Error)(nil); errors.As(err, &refused) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
