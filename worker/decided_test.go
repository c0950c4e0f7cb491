package worker

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/outputs"
	"github.com/forerunner-build/forerunner/worker/policy"
)

// TestDecisions requires a decision for each field that affects how commands run, and a field for
// each decision. If you add a field, decide whether runs that differ in it may replace each other.
func TestDecisions(t *testing.T) {
	types := map[string]reflect.Type{}
	for _, v := range []any{
		policy.Execution{}, policy.Defaults{}, runner.Command{}, sandbox.Policy{}, sandbox.Options{}, cgroup.Limits{}, outputs.Policy{}, Setting{}, Options{},
	} {
		types[fmt.Sprintf("%T", v)] = reflect.TypeOf(v)
	}
	for name, fields := range decisions() {
		of, known := types[name]
		if !known {
			t.Errorf("decisions are about %s, of which this test knows nothing", name)
			continue
		}
		for i := range of.NumField() {
			if _, decided := fields[of.Field(i).Name]; !decided {
				t.Errorf("nothing says whether %s.%s is in the key of a run: give it a line in decided.go", name, of.Field(i).Name)
			}
		}
		for field, d := range fields {
			if _, there := of.FieldByName(field); !there {
				t.Errorf("%s has no field %s", name, field)
			}
			if (d.value == nil) == (d.because == "") {
				t.Errorf("%s.%s: in the key: %t, and not because %q", name, field, d.value != nil, d.because)
			}
		}
	}
	if len(types) != len(decisions()) {
		t.Errorf("decisions are about %d types of %d", len(decisions()), len(types))
	}
}

// TestKeyOfARun changes one thing after the other, and wants runs to be told apart by those that
// decide.
func TestKeyOfARun(t *testing.T) {
	needRoot(t)
	roots := func(o vfs.Options) *vfs.FS {
		o.MountDir, o.UpperDir = t.TempDir(), t.TempDir()
		fs, err := vfs.Open(o)
		unavailable(t, err)
		t.Cleanup(func() { check(t, fs.Close()) })
		return fs
	}
	slot := func(sandbox *sandbox.Options) *runner.Launcher {
		l, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{Sandbox: sandbox})
		check(t, err)
		t.Cleanup(func() { check(t, l.Close(context.Background())) })
		return l
	}
	one, other := slot(nil), slot(nil)
	usual, inMemory := roots(vfs.Options{Method: vfs.FUSE}), roots(vfs.Options{Method: vfs.FUSE, UpperMemory: 1 << 20})
	users := func(text string) *policy.Users {
		u, err := policy.LookUpUsers(text)
		check(t, err)
		return u
	}
	policies := func(text string) *policy.Set {
		p, err := policy.Parse([]byte("policies:\n  - name: all\n    " + text))
		check(t, err)
		return p
	}
	key := func(change func(*Options), position int) []byte {
		o := Options{
			Isolation: policy.Defaults{Sandboxed: true}, Roots: usual, Launchers: []*runner.Launcher{one}, MaxOutputBytes: 1,
			Setting: Setting{Program: "one", Sandbox: &sandbox.Options{Hide: []string{"/a", "/b"}}},
		}
		if change != nil {
			change(&o)
		}
		how, err := o.Isolation.Plan([]string{"a", "b"}, []string{"A=b"}, &repb.Platform{}, position)
		check(t, err)
		return (&circumstances{how, &o}).key()
	}
	base := key(nil, 0)
	for what, c := range map[string]struct {
		change   func(*Options)
		position int
		same     bool
	}{
		"nothing":                 {nil, 0, true},
		"another position":        {nil, 1, true},
		"policy's environment":    {func(o *Options) { o.Isolation.Policies = policies("environment: {FLAVOR: debug}") }, 0, false},
		"policy's wrapper":        {func(o *Options) { o.Isolation.Policies = policies("wrappers: [[/usr/bin/env]]") }, 0, false},
		"policy's network":        {func(o *Options) { o.Isolation.Policies = policies("network: \"off\"") }, 0, false},
		"policy's user":           {func(o *Options) { o.Isolation.Policies = policies("user: \"7:7\"") }, 0, false},
		"policy's niceness":       {func(o *Options) { o.Isolation.Policies = policies("nice: 5") }, 0, true},
		"policy's name":           {func(o *Options) { o.Isolation.Policies = policies("match: {}") }, 0, true},
		"network":                 {func(o *Options) { o.Isolation.Sandbox.NoNetwork = true }, 0, false},
		"user":                    {func(o *Options) { o.Isolation.Users = users("7:7") }, 0, false},
		"sandbox":                 {func(o *Options) { o.Isolation.Sandboxed, o.Setting.Sandbox = false, nil }, 0, false},
		"what the sandbox hides":  {func(o *Options) { o.Setting.Sandbox = &sandbox.Options{Hide: []string{"/a"}} }, 0, false},
		"hidden in another order": {func(o *Options) { o.Setting.Sandbox = &sandbox.Options{Hide: []string{"/b", "/a"}} }, 0, true},
		"what the sandbox shows": {func(o *Options) {
			o.Setting.Sandbox = &sandbox.Options{Hide: []string{"/a", "/b"}, Show: []string{"/c"}}
		}, 0, false},
		"policy's system calls":      {func(o *Options) { o.Isolation.Policies = policies("allow: [perf]") }, 0, false},
		"root of a namespace":        {func(o *Options) { o.Isolation.Users = policy.OwnUsers(1900000000, 1<<16, 4) }, 0, false},
		"program":                    {func(o *Options) { o.Setting.Program = "two" }, 0, false},
		"epoch":                      {func(o *Options) { o.Setting.Epoch = "gcc 14" }, 0, false},
		"limits of the process":      {func(o *Options) { o.Setting.Inherited = []string{"1024 4096"} }, 0, false},
		"bound of stdout":            {func(o *Options) { o.MaxOutputBytes = 2 }, 0, false},
		"bound of outputs":           {func(o *Options) { o.Setting.Bounds.Bytes = 2 }, 0, false},
		"number of outputs":          {func(o *Options) { o.Setting.Bounds.Files = 2 }, 0, false},
		"bound of what is written":   {func(o *Options) { o.Setting.Bounds.Scratch = 2 }, 0, false},
		"what the disk has room for": {func(o *Options) { o.Outputs.Bytes, o.Outputs.Scratch = 2, 2 }, 0, true},
		"upper layer in memory":      {func(o *Options) { o.Roots = inMemory }, 0, false},
		"another slot of that kind":  {func(o *Options) { o.Launchers = append(o.Launchers, other) }, 0, true},
		"names of the worker":        {func(o *Options) { o.ID, o.SizeClass = map[string]string{"a": "b"}, 4 }, 0, true},
	} {
		if same := bytes.Equal(key(c.change, c.position), base); same != c.same {
			t.Errorf("%s: the same key %t, want %t", what, same, c.same)
		}
	}
	limited := func(l cgroup.Limits) []string { return limitsKey([]cgroup.Limits{l}) }
	four := limited(cgroup.Limits{CPUs: []int{0, 1}, Quota: 2000, Memory: 1 << 30, Pids: 100})
	if !reflect.DeepEqual(four, limited(cgroup.Limits{CPUs: []int{2, 3}, Quota: 2000, Memory: 1 << 30, Pids: 100})) {
		t.Error("slots with different CPUs are different")
	}
	for _, l := range []cgroup.Limits{
		{CPUs: []int{0}, Quota: 2000, Memory: 1 << 30, Pids: 100},
		{CPUs: []int{0, 1}, Quota: 1000, Memory: 1 << 30, Pids: 100},
		{CPUs: []int{0, 1}, Quota: 2000, Memory: 1 << 31, Pids: 100},
		{CPUs: []int{0, 1}, Quota: 2000, Memory: 1 << 30},
	} {
		if reflect.DeepEqual(four, limited(l)) {
			t.Errorf("slots with limits %+v are the same", l)
		}
	}
	ranged := func(o *Options) { o.Isolation.Users = users("70000-70009") }
	if !bytes.Equal(key(ranged, 0), key(ranged, 1)) {
		t.Error("two users of a range are told apart")
	}
}

// Texts of the key run into no other's.
func TestKeyOfARunIsUnambiguous(t *testing.T) {
	o := &Options{Roots: new(vfs.FS)}
	seen := map[string]*policy.Execution{}
	for _, how := range []*policy.Execution{
		{Args: []string{"ab"}},
		{Args: []string{"a", "b"}},
		{Args: []string{"a"}, Env: []string{"b"}},
		{Args: []string{"a b"}},
		{Env: []string{"a", "b"}},
		{Args: []string{""}},
		{},
	} {
		k := string((&circumstances{how, o}).key())
		if seen[k] != nil {
			t.Errorf("%v and %v have one key", how, seen[k])
		}
		seen[k] = how
	}
}
