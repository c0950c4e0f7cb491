package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/policy"
)

// A range that is too small stops the worker at its start, also in a policy.
func TestUsersMustSuffice(t *testing.T) {
	users, err := policy.LookUpUsers("100-104")
	check(t, err)
	policies, err := policy.Parse([]byte("policies: [{name: few, user: 100-104}]"))
	check(t, err)
	for _, o := range []Options{{Isolation: policy.Defaults{Users: users}}, {Isolation: policy.Defaults{Policies: policies}}} {
		for report, fault := range map[int]bool{2: false, 3: true} {
			o.Launchers, o.FetchWidth, o.ReportWidth = make([]*runner.Launcher, 2), 1, report
			if err := o.checkIsolation(); (err != nil) != fault {
				t.Errorf("%d positions: %v", 3+report, err)
			}
		}
	}
}

// TestUsersOfARange: two concurrent commands have different users. They cannot affect each other,
// nor see each other's input roots, whatever the modes in these, even without a sandbox.
func TestUsersOfARange(t *testing.T) {
	for name, o := range map[string]vfs.Options{
		"FUSE": {Method: vfs.FUSE}, "memory": {Method: vfs.FUSE, UpperMemory: 16 << 20},
		"links": {Method: vfs.HardLink}, "bare links": {Method: vfs.HardLink, DisableOverlay: true},
	} {
		t.Run(name, func(t *testing.T) {
			shared, err := os.MkdirTemp("/var/tmp", "worker-test-")
			check(t, err)
			t.Cleanup(func() { check(t, os.RemoveAll(shared)) })
			check(t, os.Chmod(shared, 0o777))
			f := newFarmWith(t, o, nil, farmOptions{slots: 2, change: func(o *Options) {
				o.Isolation.Users, err = policy.LookUpUsers("70000-70001")
				check(t, err)
				openParents(t, filepath.Dir(o.WorkDir))
			}})
			in := tree{"dir/in": "input"}
			prey := f.start(t, spec{inputs: in, env: map[string]string{"SHARED": shared}, shell: `
				id -u; echo made >dir/secret; chmod -R 777 . 2>/dev/null
				pwd >$SHARED/root; echo $$ >$SHARED/pid; mv $SHARED/pid $SHARED/ready
				while ! [ -e $SHARED/go ]; do sleep 0.01; done; cat dir/secret`})
			attacker := f.run(t, spec{inputs: in, env: map[string]string{"SHARED": shared}, shell: `
				id -u; while ! [ -e $SHARED/ready ]; do sleep 0.01; done
				cd /; pid=$(cat $SHARED/ready); root=$(cat $SHARED/root)
				kill -0 $pid; kill -9 $pid; ls $root; cat $root/dir/secret; touch $root/dir/mine
				cat /proc/$pid/environ; ls /proc/$pid/root/; ls /proc/$pid/cwd/; touch $SHARED/go`})
			assertOK(t, attacker)
			r := prey.result(t)
			assertOK(t, r)
			uids := []string{strings.TrimSpace(said(attacker)), strings.TrimSuffix(said(r), "\nmade\n")}
			slices.Sort(uids)
			if !slices.Equal(uids, []string{"70000", "70001"}) {
				t.Errorf("attacker said %q, its victim %q", said(attacker), said(r))
			}
			if got := strings.Count(string(attacker.GetResult().GetStderrRaw()), "ermi"); got != 8 {
				t.Errorf("%d of 8 attempts were not permitted: %s", got, attacker.GetResult().GetStderrRaw())
			}
		})
	}
}

// In a sandbox they have each what one user has.
func TestUsersOfARangeInASandbox(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		slots: 2, sandbox: &sandbox.Options{},
		change: func(o *Options) {
			var err error
			o.FetchWidth = 1
			o.Isolation.Users, err = policy.LookUpUsers("70000-70002")
			check(t, err)
		},
	})
	for range 4 {
		r := f.run(t, spec{
			inputs: tree{"dir/in": "input"}, dir: "dir", paths: []string{"in", "sub/out"},
			shell: "rm in; echo new >in; id -u >sub/out; id -G >>sub/out; touch /tmp/x",
		})
		assertOK(t, r)
		o := r.GetResult().GetOutputFiles()
		if len(o) != 2 {
			t.Fatalf("outputs %v", o)
		}
		ids := strings.Fields(f.read(t, o[1].GetDigest()))
		if n, err := strconv.Atoi(ids[0]); err != nil || n < 70000 || n > 70002 || len(ids) != 2 || ids[1] != ids[0] {
			t.Errorf("is user and groups %q, %v", ids, err)
		}
	}
}

func said(r *repb.ExecuteResponse) string { return string(r.GetResult().GetStdoutRaw()) }

// openParents lets all users pass to dir, which t.TempDir does not.
func openParents(t *testing.T, dir string) {
	t.Helper()
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		check(t, os.Chmod(dir, 0o755))
	}
}

// TestUserOfAnUnkillable: no action gets the user of a process that the kernel holds.
func TestUserOfAnUnkillable(t *testing.T) {
	mark := newMark("unkillable")
	freeze, thaw := frozen(t)
	sandbox := &sandbox.Options{}
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{sandbox: sandbox, own: true, change: func(o *Options) {
		held := o.Launchers[0]
		o.Relaunch = func(ctx context.Context, _ int) (*runner.Launcher, error) {
			closing, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			if err := held.Close(closing); !errors.Is(err, runner.ErrUnkillable) {
				t.Errorf("the first launcher was closed: %v", err)
			}
			l, err := runner.StartLauncher(ctx, runner.LauncherOptions{Sandbox: sandbox})
			if err == nil {
				t.Cleanup(func() { check(t, l.Close(context.Background())) })
			}
			return l, err
		}
	}})
	t.Cleanup(thaw)
	assertCode(t, f.sleeps(t, mark, freeze), codes.DeadlineExceeded, "cannot be killed")
	user := ""
	look := func(pid string) {
		status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
		user = regexp.MustCompile(`(?m)^Uid:\t(\d+)`).FindString(string(status))
	}
	assertCode(t, f.sleeps(t, mark+"-next", look), codes.DeadlineExceeded, "timeout")
	if user != "Uid:\t1900065536" {
		t.Errorf("the next action has user %q", user)
	}
}

// frozen makes a group of the v1 freezer outside of the worker's groups: processes in it react to
// no signal.
func frozen(t *testing.T) (freeze func(pid string), thaw func()) {
	t.Helper()
	dir := fmt.Sprintf("/sys/fs/cgroup/freezer/worker-test-%d", os.Getpid())
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("needs root and the freezer of cgroup v1: ", err)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(patience); os.Remove(dir) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("the group is still busy")
				return
			}
		}
	})
	write := func(file, text string) { check(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0)) }
	return func(pid string) { write("cgroup.procs", pid); write("freezer.state", "FROZEN") },
		func() { write("freezer.state", "THAWED") }
}

// sleeps returns the result of an action that sleeps until its timeout, and that do was called for.
// On a busy machine an action may end before its process is seen: then another one runs.
func (f *farm) sleeps(t *testing.T, mark string, do func(pid string)) *repb.ExecuteResponse {
	t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		j := f.start(t, spec{shell: "sleep 1000 & wait", env: markEnv(mark), timeout: time.Second})
		for len(j.completed) == 0 {
			if withSleep(mark, do) {
				return j.result(t)
			}
			time.Sleep(time.Millisecond)
		}
		j.result(t)
	}
	t.Fatal("no sleep was seen")
	return nil
}

// withSleep calls do for the sleep with a mark, once there is one.
func withSleep(mark string, do func(pid string)) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		comm, _ := os.ReadFile(name)
		if string(comm) != "sleep\n" {
			continue
		}
		if env, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "environ")); strings.Contains(string(env), mark) {
			do(filepath.Base(filepath.Dir(name)))
			return true
		}
	}
	return false
}
