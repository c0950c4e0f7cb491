package test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	farmStartTimeout = 4 * time.Minute
	farmStopTimeout  = 4 * time.Minute
)

var executorLine = regexp.MustCompile(`^build --remote_executor=(grpc://\S+)$`)

// startFarm builds this program, runs "forerunner up" with two slots on free ports of 127.0.0.1
// and returns the endpoint that it prints for bazel. When the test ends the farm is asked to
// drain; it must exit with 0 and leave no mount.
func startFarm(t *testing.T, args ...string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "forerunner")
	if out, err := exec.Command("go", "build", "-o", program, "../cmd/forerunner").CombinedOutput(); err != nil {
		t.Fatalf("build forerunner: %v\n%s", err, out)
	}
	data := filepath.Join(dir, "data")
	cmd := exec.Command(program, append([]string{
		"up", "--data", data, "--listen", freeAddress(t), "--http", freeAddress(t), "--slots", "2",
	}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("start farm: %v", err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start farm: %v", err)
	}
	endpoint := make(chan string, 1)
	exited := make(chan error, 1)
	go func() {
		scanEndpoint(stdout, endpoint)
		exited <- cmd.Wait()
	}()
	t.Cleanup(func() {
		stopFarm(t, cmd.Process, exited)
		expectNoMounts(t, data)
		if t.Failed() {
			t.Logf("farm's log:\n%s", tail(stderr.String(), 200))
		}
	})
	select {
	case e := <-endpoint:
		return e
	case err := <-exited:
		exited <- err
		t.Fatalf("farm ended before it was ready: %v", err)
	case <-time.After(farmStartTimeout):
		t.Fatalf("farm not ready after %v", farmStartTimeout)
	}
	return ""
}

// scanEndpoint reads the farm's output to its end and passes on the first endpoint in it.
func scanEndpoint(r io.Reader, endpoint chan<- string) {
	lines := bufio.NewScanner(r)
	for found := false; lines.Scan(); {
		if m := executorLine.FindStringSubmatch(strings.TrimSpace(lines.Text())); m != nil && !found {
			found = true
			endpoint <- m[1]
		}
	}
}

func stopFarm(t *testing.T, farm *os.Process, exited <-chan error) {
	t.Helper()
	if err := farm.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("stop farm: %v", err)
	}
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("farm ended with %v after SIGTERM, want exit code 0", err)
		}
	case <-time.After(farmStopTimeout):
		t.Errorf("farm still runs %v after SIGTERM", farmStopTimeout)
		if err := farm.Kill(); err != nil {
			t.Errorf("kill farm: %v", err)
		}
		<-exited
	}
}

// expectNoMounts fails the test for each mount left below dir and detaches it.
func expectNoMounts(t *testing.T, dir string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); strings.HasPrefix(fields[4], dir+"/") {
			t.Errorf("mount left behind: %s", strings.TrimSpace(line))
			if err := syscall.Unmount(fields[4], syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", fields[4], err)
			}
		}
	}
}

// freeAddress returns an address of 127.0.0.1 that nothing listened on a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// tail returns the last lines of a text.
func tail(text string, lines int) string {
	all := strings.SplitAfter(text, "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
