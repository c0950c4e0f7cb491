package datafolder

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// deadProcess returns the number of a process that has ended.
func deadProcess(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// TestLockOfTheDead has a folder whose lock is held a little longer than its process lives, as the
// kernel does for one that was killed: the next process waits for it, but not for a living one.
func TestLockOfTheDead(t *testing.T) {
	for name, c := range map[string]struct {
		pid   int
		waits bool
	}{"dead": {deadProcess(t), true}, "alive": {os.Getpid(), false}, "unknown": {0, false}} {
		dir := t.TempDir()
		held, err := Open(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("format %d\nprocess %d forerunner\n", format, c.pid)
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		type opened struct {
			f   *Folder
			err error
		}
		next := make(chan opened, 1)
		go func() {
			f, err := Open(t.Context(), dir)
			next <- opened{f, err}
		}()
		if !c.waits {
			if o := <-next; o.err == nil || !strings.Contains(o.err.Error(), "is in use by another process") {
				t.Errorf("%s: %v", name, o.err)
			}
			if err := held.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		select {
		case o := <-next:
			t.Fatalf("%s: did not wait: %v", name, o.err)
		case <-time.After(10 * releasePause):
		}
		err = held.Close()
		o := <-next
		if err = errors.Join(err, o.err); err == nil {
			err = o.f.Close()
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEnding tells the dead and the killed from the living by what the kernel says of them.
func TestEnding(t *testing.T) {
	if !(owner{deadProcess(t), "forerunner"}).isEnding() {
		t.Error("a process that has ended is not ending")
	}
	if (owner{os.Getpid(), "test"}).isEnding() {
		t.Error("this process is ending")
	}
	tail := strings.Repeat(" 0", 30)
	for stat, want := range map[string]bool{
		"1 (a) b) S 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0" + tail:   false,
		"1 (a) b) Z 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0" + tail:   true,
		"1 (a) b) D 1 1 1 0 -1 4194564 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 0 0 0" + tail:   true,
		"1 (a) b) D 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 256 0 0" + tail: true,
		"1 (a) b) D 1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0 0 0 0 0 2 0 0" + tail:   false,
		"": false,
	} {
		if got := endsBy(stat); got != want {
			t.Errorf("%q: %v", stat, got)
		}
	}
}
