package worker

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"testing"

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
	key := func(change func(*Options)) []byte {
		o := Options{
			Isolation: policy.Defaults{Sandboxed: true}, Roots: usual, Launchers: []*runner.Launcher{one}, MaxOutputBytes: 1,
			Setting: Setting{Program: "one", Sandbox: &sandbox.Options{Hide: []string{"/a", "/b"}}},
		}
		if change != nil {
			change(&o)
		}
		return o.key()
	}
	base := key(nil)
	for what, c := range map[string]struct {
		change func(*Options)
		same   bool
	}{
		"nothing":                 {nil, true},
		"policy's environment":    {func(o *Options) { o.Isolation.Policies = policies("environment: {FLAVOR: debug}") }, false},
		"policy's wrapper":        {func(o *Options) { o.Isolation.Policies = policies("wrappers: [[/usr/bin/env]]") }, false},
		"policy's network":        {func(o *Options) { o.Isolation.Policies = policies("network: \"off\"") }, false},
		"policy's user":           {func(o *Options) { o.Isolation.Policies = policies("user: \"7:7\"") }, false},
		"network":                 {func(o *Options) { o.Isolation.Sandbox.NoNetwork = true }, false},
		"user":                    {func(o *Options) { o.Isolation.Users = users("7:7") }, false},
		"sandbox":                 {func(o *Options) { o.Isolation.Sandboxed, o.Setting.Sandbox = false, nil }, false},
		"what the sandbox hides":  {func(o *Options) { o.Setting.Sandbox = &sandbox.Options{Hide: []string{"/a"}} }, false},
		"hidden in another order": {func(o *Options) { o.Setting.Sandbox = &sandbox.Options{Hide: []string{"/b", "/a"}} }, true},
		"what the sandbox shows": {func(o *Options) {
			o.Setting.Sandbox = &sandbox.Options{Hide: []string{"/a", "/b"}, Show: []string{"/c"}}
		}, false},
		"policy's system calls":      {func(o *Options) { o.Isolation.Policies = policies("allow: [perf]") }, false},
		"root of a namespace":        {func(o *Options) { o.Isolation.Users = policy.OwnUsers(1900000000, 1<<16, 4) }, false},
		"program":                    {func(o *Options) { o.Setting.Program = "two" }, false},
		"epoch":                      {func(o *Options) { o.Setting.Epoch = "gcc 14" }, false},
		"limits of the process":      {func(o *Options) { o.Setting.Inherited = []string{"1024 4096"} }, false},
		"bound of stdout":            {func(o *Options) { o.MaxOutputBytes = 2 }, false},
		"bound of outputs":           {func(o *Options) { o.Setting.Bounds.Bytes = 2 }, false},
		"number of outputs":          {func(o *Options) { o.Setting.Bounds.Files = 2 }, false},
		"bound of what is written":   {func(o *Options) { o.Setting.Bounds.Scratch = 2 }, false},
		"what the disk has room for": {func(o *Options) { o.Outputs.Bytes, o.Outputs.Scratch = 2, 2 }, true},
		"upper layer in memory":      {func(o *Options) { o.Roots = inMemory }, false},
		"another slot of that kind":  {func(o *Options) { o.Launchers = append(o.Launchers, other) }, true},
		"names of the worker":        {func(o *Options) { o.ID, o.SizeClass = map[string]string{"a": "b"}, 4 }, true},
	} {
		if same := bytes.Equal(key(c.change), base); same != c.same {
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
}

// Texts of the key run into no other's.
func TestKeyOfARunIsUnambiguous(t *testing.T) {
	seen := map[string][][]string{}
	for _, lists := range [][][]string{
		{{"ab"}, nil},
		{{"a", "b"}, nil},
		{{"a"}, {"b"}},
		{{"a b"}, nil},
		{nil, {"a", "b"}},
		{{""}, nil},
		{nil, nil},
	} {
		o := &Options{Roots: new(vfs.FS), Setting: Setting{Inherited: lists[0]}}
		o.Isolation.Sandbox.Allow = lists[1]
		k := string(o.key())
		if seen[k] != nil {
			t.Errorf("%v and %v have one key", lists, seen[k])
		}
		seen[k] = lists
	}
}
