package bazel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	runTimeout  = 15 * time.Minute
	stopTimeout = 2 * time.Minute
)

// A Client is one bazel with its own server and output root. The server runs until Shutdown or the
// end of the test that made it, for all builds below that test.
type Client struct {
	*server
	flags []string // of every build and test
}

// A server is a bazel server, once a command was run.
type server struct {
	program   string
	startup   []string
	workspace string
	root      string // --output_user_root

	builds context.Context // ends with the test
}

// New returns a client of a workspace. flags are added to every build and test.
func New(t *testing.T, program, workspace string, flags ...string) *Client {
	t.Helper()
	builds, stop := context.WithCancel(context.Background())
	c := &Client{flags: flags, server: &server{program: program, workspace: workspace, root: t.TempDir(), builds: builds}}
	c.startup = []string{
		"--nohome_rc", "--max_idle_secs=300", "--output_user_root=" + c.root,
		// A server here lives for a minute or two. The optimizing compiler would take most of its
		// CPU time, and parallel garbage collection threads wait for each other.
		"--host_jvm_args=-XX:TieredStopAtLevel=1", "--host_jvm_args=-XX:+UseSerialGC",
		// Bazel never removes the temporary files that it writes its execution log through.
		"--host_jvm_args=-Djava.io.tmpdir=" + t.TempDir(),
	}
	t.Cleanup(func() {
		stop()
		if t.Failed() {
			c.showLogs(t)
		}
		c.Shutdown(t)
	})
	return c
}

// With returns a client of the same server with further flags.
func (c *Client) With(flags ...string) *Client {
	return &Client{server: c.server, flags: slices.Concat(c.flags, flags)}
}

// A Run is the result of one bazel command.
type Run struct {
	ExitCode int
	Output   string
	Spawns   []Spawn
	Tests    map[string][]TestResult // of "bazel test", by label, one for each shard
}

// A Spawn is an entry of bazel's execution log.
type Spawn struct {
	Mnemonic      string
	Runner        string // "remote", "remote cache hit" or a local strategy
	ListedOutputs []string
}

// A TestResult is a testResult event of bazel's build event protocol.
type TestResult struct {
	Status        string
	ExecutionInfo struct{ CachedRemotely bool }
}

// Workspace returns the workspace folder.
func (c *Client) Workspace() string { return c.workspace }

// WritePackage writes a package into the workspace, and replaces its files.
func (c *Client) WritePackage(t *testing.T, name string, files map[string]string) {
	t.Helper()
	dir := filepath.Join(c.workspace, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Run executes a bazel command that builds, and reads bazel's records of it.
func (c *Client) Run(t *testing.T, command string, args ...string) Run {
	t.Helper()
	return c.run(c.builds, t, command, args...)
}

func (c *Client) run(ctx context.Context, t *testing.T, command string, args ...string) Run {
	t.Helper()
	dir := t.TempDir()
	spawnLog, eventLog := filepath.Join(dir, "spawns.json"), filepath.Join(dir, "events.json")
	all := slices.Concat([]string{command}, c.flags, []string{"--execution_log_json_file=" + spawnLog})
	if command == "test" { // of a large build it would take seconds to write, and to read
		all = append(all, "--build_event_json_file="+eventLog)
	}
	all = append(all, args...)
	var r Run
	r.ExitCode, r.Output = c.command(ctx, t, all...)
	for line := range strings.Lines(r.Output) {
		if strings.Contains(line, " processes: ") || strings.Contains(line, "Elapsed time") {
			t.Logf("bazel %s %s: %s", command, strings.Join(args, " "), strings.TrimSpace(line))
		}
	}
	r.Spawns = readJSON[Spawn](t, spawnLog)
	r.Tests = readTestResults(t, eventLog)
	return r
}

// Start is Run in the background; the end of the test interrupts a build that is still running. If
// the test has failed, unread output is shown.
func (c *Client) Start(t *testing.T, command string, args ...string) <-chan Run {
	t.Helper()
	ctx, stop := context.WithCancel(c.builds)
	ended := make(chan Run, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- c.run(ctx, t, command, args...) })
	t.Cleanup(func() {
		if t.Failed() && len(ended) == 0 {
			c.dumpThreads(t)
		}
		stop()
		running.Wait()
		select {
		case r := <-ended:
			if t.Failed() {
				t.Logf("bazel printed:\n%s", programs.Tail(r.Output, 30))
			}
		default:
		}
	})
	return ended
}

// command runs bazel and returns its exit code and everything it printed.
func (c *Client) command(ctx context.Context, t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, runTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append(c.startup, args...)...)
	cmd.Dir = c.workspace
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run bazel %s: %v", args[0], err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// pid returns the PID of the server; 0 if there is none.
func (c *Client) pid(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.root, "*/server/server.pid.txt"))
	if err != nil || len(files) == 0 {
		return 0
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Errorf("read bazel's server pid: %v", err)
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Errorf("bazel's server pid: %v", err)
	}
	return pid
}

// dumpThreads has the server write the stacks of its threads to its log.
func (c *Client) dumpThreads(t *testing.T) {
	t.Helper()
	if pid := c.pid(t); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGQUIT)
		time.Sleep(time.Second) // it says nowhere when it has
	}
}

// showLogs shows the logs of the server.
func (c *Client) showLogs(t *testing.T) {
	t.Helper()
	for _, name := range []string{"*/server/jvm.out", "*/java.log"} {
		files, _ := filepath.Glob(filepath.Join(c.root, name))
		for _, file := range files {
			text, err := os.ReadFile(file)
			t.Logf("%s: %v\n%s", file, err, programs.Tail(string(text), 400))
		}
	}
}

// Shutdown ends the client's server; none may be left.
func (c *Client) Shutdown(t *testing.T) {
	t.Helper()
	pid := c.pid(t)
	if pid == 0 {
		return
	}
	// Not the test's own context, which may have ended.
	if code, out := c.command(context.Background(), t, "shutdown"); code != 0 {
		t.Errorf("bazel shutdown: exit code %d\n%s", code, out)
	}
	process := "/proc/" + strconv.Itoa(pid)
	for end := time.Now().Add(stopTimeout); ; time.Sleep(50 * time.Millisecond) {
		if _, err := os.Stat(process); err != nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("bazel's server %s still runs after shutdown", process)
			return
		}
	}
}

// readTestResults picks the test results out of a file of build events.
func readTestResults(t *testing.T, path string) map[string][]TestResult {
	t.Helper()
	type event struct {
		ID struct {
			TestResult struct{ Label string }
		}
		TestResult *TestResult
	}
	results := map[string][]TestResult{}
	for _, e := range readJSON[event](t, path) {
		if e.TestResult != nil {
			label := e.ID.TestResult.Label
			results[label] = append(results[label], *e.TestResult)
		}
	}
	return results
}

// readJSON reads the JSON values that stand one after another in a file; none if there is no file.
func readJSON[T any](t *testing.T, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var values []T
	for d := json.NewDecoder(bufio.NewReader(f)); ; {
		var v T
		switch err := d.Decode(&v); {
		case errors.Is(err, io.EOF):
			return values
		case err != nil:
			t.Fatal(fmt.Errorf("read %s: %w", path, err))
		}
		values = append(values, v)
	}
}

// Clean removes the outputs that the client has.
func (c *Client) Clean(t *testing.T) {
	t.Helper()
	if code, out := c.command(c.builds, t, "clean"); code != 0 {
		t.Fatalf("bazel clean: exit code %d\n%s", code, out)
	}
}

// Build builds targets and fails the test unless all of them could be built.
func (c *Client) Build(t *testing.T, args ...string) Run {
	t.Helper()
	r := c.Run(t, "build", args...)
	if r.ExitCode != 0 {
		t.Fatalf("bazel build: exit code %d\n%s", r.ExitCode, programs.Tail(r.Output, 100))
	}
	return r
}

// Count returns how many spawns of a mnemonic the run had.
func (r Run) Count(mnemonic string) (n int) {
	for _, s := range r.Spawns {
		if s.Mnemonic == mnemonic {
			n++
		}
	}
	return n
}
