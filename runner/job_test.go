package runner

import (
	"bufio"
	"io"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestStopBeforeFork: a process that is forked after the stop is asked to end before its start is
// reported, which takes as long as its program's storage does.
func TestStopBeforeFork(t *testing.T) {
	requests, forks := make(chan message), make(chan func())
	run := &runRequest{Grace: time.Minute} // then it would be killed
	j := &job{
		s: &server{requests: requests, forkers: map[string]*forker{run.Policy.Thread(): {do: forks}}},
		m: &message{ID: 1, Run: run}, req: run, gap: firstStrikeGap,
	}
	done := make(chan []int)
	go func() { done <- j.supervise(nil) }()
	start := <-forks
	requests <- message{Kind: kindStop, ID: 1}
	requests <- message{} // the stop has been dealt with
	late := exec.Command("sleep", "1000")
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	if err := late.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Error(err)
	}
	start() // a command without arguments is not started
	if stuck := <-done; stuck != nil || j.out.NotStarted == "" || j.fault != nil {
		t.Errorf("%v, %+v", stuck, j)
	}
}

// TestAskedOnce: a process that is about to end is not asked again when its start is reported.
func TestAskedOnce(t *testing.T) {
	asked := exec.Command("/bin/sh", "-c", "trap 'echo asked' TERM; trap 'exit 0' WINCH; echo ready; while :; do sleep 0.01; done")
	out, err := asked.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := asked.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	expect := func(want string) {
		t.Helper()
		if got, err := lines.ReadString('\n'); got != want {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	j := &job{s: &server{}, gap: firstStrikeGap}
	expect("ready\n")
	j.ask()
	expect("asked\n")
	j.ask()
	if err := asked.Process.Signal(unix.SIGWINCH); err != nil { // a shell deals with the lower number first
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); len(rest) > 0 || err != nil {
		t.Errorf("afterwards %q, %v", rest, err)
	}
	if err := asked.Wait(); err != nil {
		t.Error(err)
	}
}
