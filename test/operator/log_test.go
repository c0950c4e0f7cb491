package operator

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestLogJSON has programs log JSON on a terminal, run actions, and end in various ways. Everything
// on standard error is JSON, also from the processes beside them.
func TestLogJSON(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	screen := newTerminal(f)
	start := func(args ...string) *programs.Process {
		f.Helper()
		// A shell gives the program the terminal as its standard error only.
		return f.Start(append([]string{"/bin/sh", "-c", `exec "$@" 2>` + screen.name, "sh"}, onPath(f, args)...)...)
	}

	scheduler := start("forerunner-scheduler", "--data", filepath.Join(f.Dir, "scheduler"), "--listen", "127.0.0.1:0", "--log-json")
	address := scheduler.WaitFor(&scheduler.Stdout, programs.ServesLine)[1]
	data := filepath.Join(f.Dir, "worker")
	f.Cleanup(func() { programs.ExpectNoMounts(f.T, data) })
	ofWorker := []string{"forerunner-worker", "--data", data, "--scheduler", "grpc://" + address, "--storage", "grpc://" + address, "--log-json"}
	worker := start(ofWorker...)
	f.Eventually("the worker is ready", func() bool { return screen.count("worker is ready") == 1 })
	for _, script := range []string{"true", "exit 3", "sleep 0.1; kill -SEGV $$"} {
		f.Exec(address, "--", "/bin/sh", "-c", script).Wait()
	}

	// Programs that end before they serve.
	for _, args := range [][]string{
		ofWorker, // the folder is in use
		{"forerunner-scheduler", "--no-such-flag", "--log-json"},
		{"forerunner-scheduler", "--log-json", "--listen", "nowhere"},
		{"forerunner", "up", "--log-json", "--slots=many"},
		{"forerunner", "up", "--log-json", "--config", filepath.Join(f.Dir, "no-such-file")},
	} {
		before := screen.count("program ends")
		if code := start(args...).Wait(); code == 0 {
			f.Errorf("%q: exit code 0", args)
		}
		f.Eventually(fmt.Sprintf("%q says why it ends", args), func() bool { return screen.count("program ends") > before })
	}

	// A guard and a launcher that nobody needs, as the worker calls them.
	for _, name := range []string{"forerunner-launcher", "forerunner-guard"} {
		beside := exec.Command(filepath.Join(f.Programs, "forerunner-worker"))
		beside.Args, beside.Stderr = argumentsOf(f, worker, name), screen.users
		_ = beside.Run() // says that only a worker starts it
	}
	f.Eventually("the launcher says who starts it", func() bool { return screen.count("only a worker starts this") == 1 })

	// A worker that is killed, one that gives up, and one that drains.
	run := func() *programs.Process {
		before := executing(f, address)
		client := f.Exec(address, "--", "/bin/sh", "-c", fmt.Sprintf("sleep 60 # after %d", len(before)))
		f.Eventually("another action runs", func() bool {
			return slices.ContainsFunc(executing(f, address), func(name string) bool { return !slices.Contains(before, name) })
		})
		return client
	}
	running := run()
	worker.Kill()
	running.Kill()
	worker = start(ofWorker...)
	f.Eventually("the next worker is ready", func() bool { return screen.count("worker is ready") == 2 })
	running = run()
	worker.Signal(syscall.SIGTERM)
	f.Eventually("the worker drains", func() bool { return screen.count("finishing what runs") == 1 })
	worker.Signal(syscall.SIGTERM)
	worker.Wait()
	running.Kill()
	worker = start(ofWorker...)
	f.Eventually("the last worker is ready", func() bool { return screen.count("worker is ready") == 3 })
	worker.Drain()
	scheduler.Drain()

	for _, line := range screen.lines() {
		if !json.Valid([]byte(line)) {
			f.Errorf("%q is not JSON", line)
		}
	}
}

// executing returns the operations that a worker has.
func executing(f *programs.Test, address string) (names []string) {
	f.Helper()
	var list struct {
		Operations []struct {
			Name     string
			Attempts int
		}
	}
	if err := json.Unmarshal([]byte(f.Verb(address, "queue", "operations", "--json")), &list); err != nil {
		f.Fatal(err)
	}
	for _, op := range list.Operations {
		if op.Attempts > 0 {
			names = append(names, op.Name)
		}
	}
	return names
}

// onPath returns a command line with the path of the program.
func onPath(f *programs.Test, args []string) []string {
	return append([]string{filepath.Join(f.Programs, args[0])}, args[1:]...)
}

// argumentsOf returns the command line of a process beside a worker.
func argumentsOf(f *programs.Test, worker *programs.Process, name string) []string {
	f.Helper()
	var found []string
	f.Eventually(name+" runs", func() bool {
		lists, err := filepath.Glob("/proc/[0-9]*/stat")
		if err != nil {
			f.Fatal(err)
		}
		for _, list := range lists {
			stat, err := os.ReadFile(list)
			if err != nil || !strings.Contains(string(stat), fmt.Sprintf(") S %d ", worker.Pid())) {
				continue
			}
			line, err := os.ReadFile(filepath.Join(filepath.Dir(list), "cmdline"))
			if args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"); err == nil && args[0] == name {
				found = args
				return true
			}
		}
		return false
	})
	return found
}

// A terminal has what programs write to it.
type terminal struct {
	name  string
	users *os.File // the end of programs

	mu      sync.Mutex
	written []string // guarded by mu
}

// newTerminal returns a terminal that is read until the end of the test.
func newTerminal(f *programs.Test) *terminal {
	f.Helper()
	end, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		f.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(end.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(end.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		f.Fatal(err)
	}
	t := &terminal{name: fmt.Sprintf("/dev/pts/%d", n)}
	if t.users, err = os.OpenFile(t.name, os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		f.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(end); s.Scan(); {
			t.mu.Lock()
			t.written = append(t.written, strings.TrimRight(s.Text(), "\r"))
			t.mu.Unlock()
		}
	}()
	f.Cleanup(func() {
		_ = t.users.Close() // and the programs' are: the read ends
		<-done
		_ = end.Close()
	})
	return t
}

func (t *terminal) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.written...)
}

// count returns how many lines have a text.
func (t *terminal) count(text string) (n int) {
	for _, line := range t.lines() {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}
