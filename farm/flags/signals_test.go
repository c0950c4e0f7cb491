package flags

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// stuckName is in the environment of a program that drains for ever.
const stuckName = "FORERUNNER_TEST_STUCK"

// TestSecondSignalUnread has a program that hangs, and whose messages nobody reads, end at the
// second signal.
func TestSecondSignalUnread(t *testing.T) {
	if os.Getenv(stuckName) != "" {
		drainForEver()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestSecondSignalUnread$")
	program.Env = append(os.Environ(), stuckName+"=1")
	program.Stderr = fullPipe(t)
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() { // it is ready for a signal
		if err := program.Process.Signal(unix.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	var exit *exec.ExitError
	if err := program.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("it ended with %v, want exit status 1", err)
	}
}

func drainForEver() {
	drain, abort, _ := Logging{}.Signals(context.Background())
	for _, ctx := range []context.Context{context.Background(), drain, abort} {
		if ctx.Done() != nil {
			<-ctx.Done()
		}
		if ctx != abort {
			fmt.Println("ready")
		}
	}
	time.Sleep(time.Hour)
}

// fullPipe returns the end of a pipe that takes nothing, and whose other end is there.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = r.Close(), w.Close() })
	fd := int(w.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 4096))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return w
}
