package sandbox_test

import (
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/sandbox"
)

// TestInheritedFiles: commands get the original soft limit of open files, not the one that the
// runtime has set.
func TestInheritedFiles(t *testing.T) {
	all, err := sandbox.Inherited()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("limit %d: %s", unix.RLIMIT_NOFILE, strings.Join(strings.Fields(string(out)), " "))
	if !slices.Contains(all, want) {
		t.Errorf("%q is not among %q", want, all)
	}
}

// TestInherited reports each change in how this process was started, and nothing else.
func TestInherited(t *testing.T) {
	for name, test := range map[string]struct {
		change func() error
		differ []string // how what differs begins
	}{
		"nothing": {func() error { return nil }, nil},
		"a limit": {changeCoreLimit(t), []string{fmt.Sprintf("limit %d:", unix.RLIMIT_CORE)}},
		"personality": {func() error {
			const noRandomize = 0x0040000
			return errno(unix.Syscall(unix.SYS_PERSONALITY, noRandomize, 0, 0))
		}, []string{"personality:"}},
		"CPUs": {oneCPU, []string{"CPUs:"}},
		"new rights": {func() error {
			return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}, []string{"NoNewPrivs:"}},
		"bounding set": {func() error {
			return unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_MKNOD, 0, 0, 0)
		}, []string{"CapPrm:", "CapEff:", "CapBnd:"}},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := inheritedAround(t, test.change)
			var differ []string
			for i := range before {
				if before[i] != after[i] {
					differ = append(differ, after[i])
				}
			}
			if !slices.EqualFunc(differ, test.differ, strings.HasPrefix) {
				t.Errorf("%q differ, want %q", differ, test.differ)
			}
		})
	}
}

// inheritedAround asks before and after a change of one thread, which ends with it.
func inheritedAround(t *testing.T, change func() error) (before, after []string) {
	t.Helper()
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		if before, err = sandbox.Inherited(); err == nil {
			if err = change(); err == nil {
				after, err = sandbox.Inherited()
			}
		}
		ended <- err
	}()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(before) != len(after) {
		t.Fatalf("%q before, %q after", before, after)
	}
	return before, after
}

// changeCoreLimit changes a limit of this process, for as long as the test runs.
func changeCoreLimit(t *testing.T) func() error {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		t.Fatal(err)
	}
	return func() error {
		t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_CORE, &was) })
		return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: min(was.Cur, 1<<20) ^ 4096, Max: was.Max})
	}
}

// oneCPU leaves the calling thread the first of its CPUs.
func oneCPU() error {
	var all, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return err
	}
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	return unix.SchedSetaffinity(0, &one)
}

func errno(_, _ uintptr, err unix.Errno) error {
	if err != 0 {
		return err
	}
	return nil
}
