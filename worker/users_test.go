package worker

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
)

func TestLookUpUsers(t *testing.T) {
	u, err := LookUpUsers("root")
	if one := u.at(3); err != nil || one.UID != 0 || one.GID != 0 || !slices.Contains(one.Groups, 0) || u.Owner() == nil {
		t.Errorf("root is %+v, %v", u, err)
	}
	u, err = LookUpUsers("5:6")
	if one := u.at(3); err != nil || one.UID != 5 || one.GID != 6 || len(one.Groups) != 0 || *u.Owner() != (vfs.Owner{UID: 5, GID: 6}) {
		t.Errorf("5:6 is %+v, %v", u, err)
	}
	u, err = LookUpUsers("100-103")
	if one := u.at(3); err != nil || one.UID != 103 || one.GID != 103 || len(one.Groups) != 0 || u.Owner() != nil {
		t.Errorf("100-103 is %+v, %v", u, err)
	}
	if u.suffice(4) != nil || u.suffice(5) == nil {
		t.Errorf("of 100-103: four %v, five %v", u.suffice(4), u.suffice(5))
	}
	for _, name := range []string{
		"", ":", "-1:0", "5:", "no such user", "5", "-", "5-", "-5", "6-5", "0-5", "5-6:7", "5-99999999999", "5-root",
	} {
		if u, err := LookUpUsers(name); err == nil {
			t.Errorf("%q is %+v", name, u)
		}
	}
}

// A range that is too small stops the worker at its start, also in a policy.
func TestUsersMustSuffice(t *testing.T) {
	users, err := LookUpUsers("100-104")
	check(t, err)
	policies, err := parsePolicies([]byte("policies: [{name: few, user: 100-104}]"))
	check(t, err)
	for _, o := range []Options{{Users: users}, {Policies: policies}} {
		for report, fault := range map[int]bool{2: false, 3: true} {
			o.Launchers, o.FetchWidth, o.ReportWidth = make([]*runner.Launcher, 2), 1, report
			if err := o.checkUsers(); (err != nil) != fault {
				t.Errorf("%d positions: %v", 3+report, err)
			}
		}
	}
}

// Two commands at once are of two users, who can do nothing to each other and cannot
// see each other's input roots, whatever the modes in them: also without a sandbox.
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
				o.Users, err = LookUpUsers("70000-70001")
				check(t, err)
				openParents(t, filepath.Dir(o.WorkDir))
			}})
			in := tree{"dir/in": "input"}
			prey := f.start(t, spec{inputs: in, env: map[string]string{"SHARED": shared}, shell: `
				id -u; echo made >dir/secret; chmod -R 777 . 2>/dev/null
				pwd >$SHARED/root; echo $$ >$SHARED/pid; mv $SHARED/pid $SHARED/ready
				while ! [ -e $SHARED/go ]; do sleep 0.01; done; cat dir/secret`})
			hunter := f.run(t, spec{inputs: in, env: map[string]string{"SHARED": shared}, shell: `
				id -u; while ! [ -e $SHARED/ready ]; do sleep 0.01; done
				cd /; pid=$(cat $SHARED/ready); root=$(cat $SHARED/root)
				kill -0 $pid; kill -9 $pid; ls $root; cat $root/dir/secret; touch $root/dir/mine
				cat /proc/$pid/environ; ls /proc/$pid/root/; ls /proc/$pid/cwd/; touch $SHARED/go`})
			assertOK(t, hunter)
			r := prey.result(t)
			assertOK(t, r)
			uids := []string{strings.TrimSpace(said(hunter)), strings.TrimSuffix(said(r), "\nmade\n")}
			slices.Sort(uids)
			if !slices.Equal(uids, []string{"70000", "70001"}) {
				t.Errorf("hunter said %q, its prey %q", said(hunter), said(r))
			}
			if got := strings.Count(string(hunter.GetResult().GetStderrRaw()), "ermi"); got != 8 {
				t.Errorf("%d of 8 attempts were not permitted: %s", got, hunter.GetResult().GetStderrRaw())
			}
		})
	}
}

// In a sandbox they have each what one user has.
func TestUsersOfARangeInASandbox(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		slots: 2, sandbox: &runner.Sandbox{},
		change: func(o *Options) {
			var err error
			o.FetchWidth = 1
			o.Users, err = LookUpUsers("70000-70002")
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
