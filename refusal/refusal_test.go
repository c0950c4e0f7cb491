package refusal_test

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/refusal"
)

func TestIs(t *testing.T) {
	_, missing := os.Open("/does/not/exist")
	for err, want := range map[error]bool{
		missing:                                true,
		fmt.Errorf("mount: %w", syscall.EPERM): true,
		fmt.Errorf("no such system call: %w", syscall.ENOSYS): true,
		fmt.Errorf("no more mounts: %w", syscall.ENOSPC):      false,
		fmt.Errorf("open: %w", syscall.EMFILE):                false,
		fmt.Errorf("fork: %w", syscall.EAGAIN):                false,
		fmt.Errorf("map: %w", syscall.ENOMEM):                 false,
		fmt.Errorf("read: %w", syscall.EIO):                   false,
		errors.New("still there after 64 attempts"):           false,
	} {
		if got := refusal.Is(err); got != want {
			t.Errorf("%v: %t, want %t", err, got, want)
		}
	}
	if refusal.Is(nil) {
		t.Error("no error is a refusal")
	}
}
