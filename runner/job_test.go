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
	// The first process that package os makes comes after one that tries the kernel, with the
	// handlers and the memory of this one: a launcher does not use the package for that.
	if err := exec.Command("true").Run(); err != nil {
		t.Fatal(err)
	}
	j := newJob(&server{}, &message{ID: 1, Run: &runRequest{Grace: time.Minute}}) // then it would be killed
	// What an earlier test left would be asked to end instead.
	for began := time.Now(); len(j.s.members()) > 0; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("processes of earlier tests are left: %+v", j.s.members())
		}
	}
	j.stop(terminate)
	late := exec.Command("sleep", "1000")
	if err := late.Start(); err != nil {
		t.Fatal(err)
	}
	if err := late.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Error(err)
	}
	j.started(notFound("no such file"))
	j.end()
	if done := j.done(); done.Done.NotStarted == "" || !done.Done.EndedBeingKilled || done.Fault != "" {
		t.Errorf("%+v, %+v", done, done.Done)
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
	k := &killer{j: newJob(&server{}, &message{Run: &runRequest{}}), gap: firstStrikeGap}
	expect("ready\n")
	k.ask()
	expect("asked\n")
	k.ask()
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
