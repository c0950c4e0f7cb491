package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/pipeline"
)

// untilOpen is a script that ends when the file $GATE exists.
const untilOpen = `echo waiting; while [ ! -e "$GATE" ]; do sleep 0.05; done; echo through`

// newGate returns the path of a file that does not exist yet, where the commands of newFarm see it.
func newGate(t *testing.T) string { return filepath.Join(gates(t), "gate") }

// gates is a folder of this test that sandboxes can show.
func gates(t *testing.T) string {
	dir := fmt.Sprintf("/var/lib/forerunner-worker-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
	check(t, os.MkdirAll(dir, 0o755))
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestCancel(t *testing.T) {
	f := newFarm(t)
	mark := newMark("cancel")
	j := f.start(t, spec{
		shell: "setsid sleep 1000 & sleep 1000", env: markEnv(mark),
	})
	j.reaches(t, "running")
	f.scheduler.withdraw(j)
	// The position asks for work again only when the command has ended.
	f.assertGood(t)
	if marked(t, mark) {
		t.Error("a process of the command is still alive")
	}
	f.assertNotCached(t, j)
	if len(j.completed) != 0 {
		t.Error("the action was reported though nobody wants it")
	}
}

// TestRelaunch has the launcher of the slot gone, and not replaced at once.
func TestRelaunch(t *testing.T) {
	tries := make(chan int, 2)
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) {
		check(t, o.Launchers[0].Close(t.Context()))
		o.Relaunch = func(ctx context.Context, _ int) (*runner.Launcher, error) {
			if tries <- 1; len(tries) == 1 {
				return nil, errors.New("no memory")
			}
			l, err := runner.StartLauncher(ctx, runner.LauncherOptions{})
			if err == nil {
				t.Cleanup(func() { check(t, l.Close(context.Background())) })
			}
			return l, err
		}
	}})
	assertCode(t, f.run(t, spec{shell: "true"}), codes.Unavailable, "launcher")
	f.assertGood(t)
}

// TestLauncherDiesIdle: a launcher that was killed while it had no command is no death of the next
// command, which still runs once more when an unknown process kills it.
func TestLauncherDiesIdle(t *testing.T) {
	var launcher *runner.Launcher
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{change: func(o *Options) {
		launcher = o.Launchers[0]
		o.Relaunch = func(ctx context.Context, _ int) (*runner.Launcher, error) {
			l, err := runner.StartLauncher(ctx, runner.LauncherOptions{})
			if err == nil {
				t.Cleanup(func() { check(t, l.Close(context.Background())) })
			}
			return l, err
		}
	}})
	check(t, syscall.Kill(launcher.Pid(), syscall.SIGKILL))
	<-launcher.Gone()
	seen := filepath.Join(gates(t), "seen")
	response := f.run(t, spec{
		shell: "test -e $SEEN || { touch $SEEN; kill -9 $$; }", env: map[string]string{"SEEN": seen},
	})
	if code := response.GetResult().GetExitCode(); code != 0 || response.GetStatus() != nil {
		t.Errorf("exit code %d, status %v, want those of the second run", code, response.GetStatus())
	}
}

// TestRelaunchOfACancelledAction: the slot needs a new launcher, whatever happens to the action
// that lost the old one.
func TestRelaunchOfACancelledAction(t *testing.T) {
	launcher := &runner.Launcher{}
	w := &Worker{log: zaptest.NewLogger(t), opts: Options{
		Relaunch: func(ctx context.Context, _ int) (*runner.Launcher, error) { return launcher, ctx.Err() },
	}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := &pipeline.Slot{}
	if w.relaunch(ctx, s); s.Launcher != launcher {
		t.Error("the launcher was not replaced")
	}
}

func TestDrain(t *testing.T) {
	f := newFarm(t)
	gate := newGate(t)
	j := f.start(t, spec{shell: untilOpen, env: map[string]string{"GATE": gate}})
	j.reaches(t, "running")
	f.drain()
	f.scheduler.heard(t, "the drain", func(r *remoteworker.SynchronizeRequest) bool {
		return r.GetPreferBeingIdle() && r.GetCurrentState().GetExecuting().GetRunning() != nil
	})
	check(t, os.WriteFile(gate, nil, 0o600))
	r := j.result(t)
	assertOK(t, r)
	if got := string(r.GetResult().GetStdoutRaw()); got != "waiting\nthrough\n" {
		t.Errorf("stdout is %q", got)
	}
	f.wait(t)
	f.scheduler.heard(t, "the result of a worker that drains", func(r *remoteworker.SynchronizeRequest) bool {
		return r.GetPreferBeingIdle() && r.GetCurrentState().GetExecuting().GetCompleted() != nil
	})
	if last := f.scheduler.last(); !last.GetPreferBeingIdle() || last.GetCurrentState().GetIdle() == nil {
		t.Errorf("the last words were %v", last)
	}
}

// TestDrainWithoutScheduler has the scheduler away when a worker that drains ends its
// action: it stays until the result is taken.
func TestDrainWithoutScheduler(t *testing.T) {
	f := newFarm(t)
	gate := newGate(t)
	j := f.start(t, spec{shell: untilOpen, env: map[string]string{"GATE": gate}})
	j.reaches(t, "running")
	f.drain()
	f.scheduler.heard(t, "the drain", func(r *remoteworker.SynchronizeRequest) bool { return r.GetPreferBeingIdle() })
	f.scheduler.fail(4)
	check(t, os.WriteFile(gate, nil, 0o600))
	assertOK(t, j.result(t))
	f.wait(t)
}

func TestSilence(t *testing.T) {
	for wanted, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, time.Millisecond: time.Millisecond,
		5 * time.Second: 5 * time.Second, time.Hour: 10 * time.Second,
	} {
		if got := silence(wanted); got != want {
			t.Errorf("the scheduler wants to hear in %s: silent for %s, want %s", wanted, got, want)
		}
	}
}

func TestDrainIdle(t *testing.T) {
	f := newFarm(t)
	f.assertGood(t)
	f.drain()
	f.wait(t)
}

func TestAbort(t *testing.T) {
	f := newFarm(t)
	mark := newMark("abort")
	j := f.start(t, spec{shell: "sleep 1000", env: markEnv(mark)})
	j.reaches(t, "running")
	f.drain()
	f.abort()
	f.wait(t)
	if marked(t, mark) {
		t.Error("the command is still alive")
	}
	f.assertNotCached(t, j)
}

// TestSchedulerAway has the scheduler fail around the end of an action.
func TestSchedulerAway(t *testing.T) {
	f := newFarm(t)
	gate := newGate(t)
	j := f.start(t, spec{shell: untilOpen, env: map[string]string{"GATE": gate}})
	j.reaches(t, "running")
	f.scheduler.fail(4)
	check(t, os.WriteFile(gate, nil, 0o600))
	r := j.result(t)
	assertOK(t, r)
	if got := string(r.GetResult().GetStdoutRaw()); got != "waiting\nthrough\n" {
		t.Errorf("stdout is %q", got)
	}
	f.assertGood(t)
}

func TestStatesAreReportedInOrder(t *testing.T) {
	f := newFarm(t)
	j := f.start(t, spec{shell: "sleep 0.2"})
	assertOK(t, j.result(t))
	close(j.states)
	order := map[string]int{"started": 1, "fetching": 2, "running": 3, "uploading": 4, "completed": 5}
	last := ""
	seen := map[string]bool{}
	for state := range j.states {
		if order[state] < order[last] {
			t.Errorf("%s was reported after %s", state, last)
		}
		last, seen[state] = state, true
	}
	if !seen["running"] || last != "completed" {
		t.Errorf("reported were %v, at last %q", seen, last)
	}
}

// TestActionWithoutTimeout must not run: the scheduler has to set the timeout.
func TestActionWithoutTimeout(t *testing.T) {
	f := newFarm(t)
	for _, timeout := range []*durationpb.Duration{nil, durationpb.New(0), durationpb.New(-time.Second)} {
		j := f.job(t, spec{shell: "exit 0", doNotCache: true})
		j.desired.Action.Timeout = timeout
		select {
		case f.scheduler.work <- j:
		case <-time.After(patience):
			t.Fatal("the worker does not ask for work")
		}
		assertCode(t, j.result(t), codes.InvalidArgument, "no timeout")
	}
	f.assertGood(t)
}
