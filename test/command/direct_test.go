package command

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestDirectCalls: a farm in one process runs actions, waits for a long one when it stops, and ends
// that when it is told again, whether its worker calls the scheduler directly or over sockets.
func TestDirectCalls(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	f.Write("in/text", strings.Repeat("an input\n", 1_000_000)) // more than one message
	sockets := map[bool]int{}
	for _, direct := range []bool{true, false} {
		data := filepath.Join(f.Dir, fmt.Sprintf("data-%t", direct))
		config := f.Write("farm.yaml", fmt.Sprintf("tuning:\n  direct_calls: %t\n  one_store: false\n", direct))
		farm, address := f.Up(data, "--config", config)
		begin := func(script string) *programs.Process {
			p := f.Exec(address, "--live=on", "--timeout", "50s", "--", "/bin/sh", "-c", "echo begun; "+script)
			p.WaitFor(&p.Stdout, regexp.MustCompile(`^begun\n`))
			return p
		}
		f.Exec(address, "--input", "in", "--output", "out", "--", "/bin/sh", "-c", "cat text text >out; wc -c <text").Expect(0, "9000000\n")
		sockets[direct] = socketsOf(t, farm)
		gate := filepath.Join(f.Dir, fmt.Sprintf("gate-%t", direct))
		long := begin(fmt.Sprintf("until [ -e %s ]; do sleep 0.05; done; echo ended", gate))
		farm.Signal(syscall.SIGTERM)
		farm.WaitFor(&farm.Stderr, regexp.MustCompile(`finishing what runs`))
		f.Write(filepath.Base(gate), "")
		long.Expect(0, "begun\nended\n")
		if code := farm.Wait(); code != 0 {
			t.Errorf("direct_calls %t: exit code %d, want 0", direct, code)
		}

		farm, address = f.Up(data, "--config", config)
		long = begin("sleep 40; echo ended")
		farm.Signal(syscall.SIGTERM)
		farm.WaitFor(&farm.Stderr, regexp.MustCompile(`finishing what runs`))
		farm.Signal(syscall.SIGTERM)
		farm.Wait()
		long.Kill() // it would wait for the farm to return
		if got := long.Stdout.String(); got != "begun\n" {
			t.Errorf("direct_calls %t: an action that was aborted prints %q", direct, got)
		}
	}
	if sockets[true] >= sockets[false] {
		t.Errorf("the program has %d sockets with direct calls, %d without", sockets[true], sockets[false])
	}
}

// socketsOf returns how many sockets a process has.
func socketsOf(t *testing.T, p *programs.Process) (n int) {
	t.Helper()
	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range open {
		if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}
