package runner_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// sigaction is the kernel's.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// TestCommandIgnoresNoSignal starts a launcher from a process that ignores a signal
// which the Go runtime knows nothing of; the command must not inherit that.
func TestCommandIgnoresNoSignal(t *testing.T) {
	const (
		signal       = 32
		ignored      = 1 // SIG_IGN
		sigsetLength = 8
	)
	set := func(action, old *sigaction) {
		if _, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, signal, uintptr(unsafe.Pointer(action)),
			uintptr(unsafe.Pointer(old)), sigsetLength, 0, 0); errno != 0 {
			t.Fatal(errno)
		}
	}
	var before sigaction
	set(&sigaction{handler: ignored}, &before)
	l := launchertest.Plain(t, nil)
	set(&before, nil)
	out := filepath.Join(t.TempDir(), "stdout")
	launchertest.Run(t, l, runner.Command{Args: []string{"/bin/grep", "SigIgn", "/proc/self/status"}, Dir: "/", Stdout: out})
	got, err := os.ReadFile(out)
	if want := "SigIgn:\t0000000000000000\n"; err != nil || string(got) != want {
		t.Errorf("command has %q, %v; want %q", got, err, want)
	}
}

// The launcher's threads are woken up late, and commands when they asked for it.
func TestTimerSlack(t *testing.T) {
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		if got := launchertest.Say(t, l, launchertest.Command(t, "/bin/cat", "/proc/self/timerslack_ns")); got != "50000" {
			t.Errorf("a command has %s ns, want 50000", got)
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", l.Pid()))
		if err != nil || string(text) != "4000000\n" {
			t.Errorf("the launcher has %s ns, %v", text, err)
		}
	})
}
