package test

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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	bazelRunTimeout  = 15 * time.Minute
	bazelStopTimeout = 2 * time.Minute
)

// bazelClient is one bazel with a server and an output root of its own.
type bazelClient struct {
	program   string
	startup   []string
	workspace string
	root      string   // --output_user_root
	flags     []string // of every build and test

	builds  context.Context // ends with the test
	running sync.WaitGroup  // what start has started
}

func newBazelClient(t *testing.T, program, workspace string, flags ...string) *bazelClient {
	t.Helper()
	builds, stop := context.WithCancel(context.Background())
	c := &bazelClient{
		program:   program,
		workspace: workspace,
		root:      t.TempDir(),
		flags:     flags,
		builds:    builds,
	}
	c.startup = []string{
		"--nohome_rc", "--max_idle_secs=300", "--output_user_root=" + c.root,
		// Bazel never removes the temporary files that it writes its execution log through.
		"--host_jvm_args=-Djava.io.tmpdir=" + t.TempDir(),
	}
	t.Cleanup(func() {
		// A test that failed may have left a build, which would keep the server from ending.
		stop()
		c.running.Wait()
		c.shutdown(t)
	})
	return c
}

// bazelRun is what came of one bazel command.
type bazelRun struct {
	exitCode int
	output   string
	spawns   []bazelSpawn
	tests    map[string][]bazelTestResult // by label, one for each shard
}

// bazelSpawn is an entry of bazel's execution log.
type bazelSpawn struct {
	Mnemonic      string
	Runner        string // "remote", "remote cache hit" or a local strategy
	ListedOutputs []string
}

// bazelTestResult is a testResult event of bazel's build event protocol.
type bazelTestResult struct {
	Status        string
	ExecutionInfo struct{ CachedRemotely bool }
}

// run executes a bazel command that builds, and reads what bazel recorded of it.
func (c *bazelClient) run(t *testing.T, command string, args ...string) bazelRun {
	t.Helper()
	dir := t.TempDir()
	spawnLog, eventLog := filepath.Join(dir, "spawns.json"), filepath.Join(dir, "events.json")
	all := append([]string{command}, c.flags...)
	all = append(all, "--execution_log_json_file="+spawnLog, "--build_event_json_file="+eventLog)
	var r bazelRun
	r.exitCode, r.output = c.command(c.builds, t, append(all, args...)...)
	for line := range strings.Lines(r.output) {
		if strings.Contains(line, " processes: ") || strings.Contains(line, "Elapsed time") {
			t.Logf("bazel %s %s: %s", command, strings.Join(args, " "), strings.TrimSpace(line))
		}
	}
	r.spawns = readJSON[bazelSpawn](t, spawnLog)
	r.tests = readTestResults(t, eventLog)
	return r
}

// start has run go on beside the test.
func (c *bazelClient) start(t *testing.T, command string, args ...string) <-chan bazelRun {
	ended := make(chan bazelRun, 1)
	c.running.Go(func() { ended <- c.run(t, command, args...) })
	return ended
}

// command runs bazel and returns its exit code and everything it printed.
func (c *bazelClient) command(ctx context.Context, t *testing.T, args ...string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, bazelRunTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, append(c.startup, args...)...)
	cmd.Dir = c.workspace
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = bazelStopTimeout
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("run bazel %s: %v", args[0], err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// shutdown ends the client's server; none may be left.
func (c *bazelClient) shutdown(t *testing.T) {
	t.Helper()
	pids, err := filepath.Glob(filepath.Join(c.root, "*/server/server.pid.txt"))
	if err != nil || len(pids) == 0 {
		return
	}
	pid, err := os.ReadFile(pids[0])
	if err != nil {
		t.Errorf("read bazel's server pid: %v", err)
		return
	}
	// Not the test's own context, which may have ended.
	if code, out := c.command(context.Background(), t, "shutdown"); code != 0 {
		t.Errorf("bazel shutdown: exit code %d\n%s", code, out)
	}
	process := "/proc/" + strings.TrimSpace(string(pid))
	for end := time.Now().Add(bazelStopTimeout); ; time.Sleep(50 * time.Millisecond) {
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
func readTestResults(t *testing.T, path string) map[string][]bazelTestResult {
	t.Helper()
	type event struct {
		ID struct {
			TestResult struct{ Label string }
		}
		TestResult *bazelTestResult
	}
	results := map[string][]bazelTestResult{}
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
