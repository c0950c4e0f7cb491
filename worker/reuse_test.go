package worker

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// reuseStore is a record.Hints in memory.
type reuseStore struct {
	mu      sync.Mutex
	records map[record.Key][]byte
}

func (s *reuseStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.records[k]
	if !ok {
		return nil, record.ErrNotFound
	}
	return slices.Clone(b), nil
}

func (s *reuseStore) Put(_ context.Context, k record.Key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records == nil {
		s.records = map[record.Key][]byte{}
	}
	s.records[k] = slices.Clone(value)
	return nil
}

func (s *reuseStore) damage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.records {
		b[len(b)/2] ^= 1
	}
}

// TestReusedFetchesNothing has a profile foresee a file that has changed, and that the run which is
// spared would not read.
func TestReusedFetchesNothing(t *testing.T) {
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{}), farmOptions{
		change: func(o *Options) { o.Reuse, o.Setting.Program = reuse.New(&reuseStore{}), "test" },
	})
	in := tree{"which": "a", "a": "read at first", "b": "read then"}
	for _, which := range []string{"a", "b", "b"} {
		in["which"] = which
		if which == "b" {
			in["c"] = "another input"
		}
		assertOK(t, f.run(t, spec{inputs: in, shell: "cat $(cat which) > out", paths: []string{"out"}}))
	}
	in["a"] = "changed, and read no more"
	asked, release := f.reads.tells(asking), f.reads.hold(asking)
	done := make(chan *repb.ExecuteResponse)
	go func() { done <- f.run(t, spec{inputs: in, shell: "cat $(cat which) > out", paths: []string{"out"}}) }()
	<-asked
	// Give a wrong fetch the time to begin.
	changed := digestOfBytes(in["a"].(string))
	for end := time.Now().Add(time.Second); f.reads.count(changed) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	release()
	if r := <-done; !r.GetCachedResult() {
		t.Errorf("the command was run: %v", r)
	}
	if f.reads.count(changed) > 0 {
		t.Error("a file was fetched for a command that was not run")
	}
}

// TestReusedAreVouchedFor: a former run whose output storage has kept over a start of its machine,
// and not read since, counts only if that is right.
func TestReusedAreVouchedFor(t *testing.T) {
	for name, c := range map[string]struct {
		kept   string
		reused bool
	}{"right": {"twice twice ", true}, "damaged": {"twice TWICE ", false}} {
		t.Run(name, func(t *testing.T) {
			store, storage := &reuseStore{}, t.TempDir()
			start := func(t *testing.T) *farm {
				return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
					storage: storage,
					change:  func(o *Options) { o.Reuse, o.Setting.Program = reuse.New(store), "test" },
				})
			}
			action := spec{inputs: tree{"in": "twice ", "unread": "a"}, shell: "cat in in > out", paths: []string{"out"}}
			t.Run("first", func(t *testing.T) { assertOK(t, start(t).run(t, action)) })
			blob := filepath.Join(storage, disk.BlobPath(digestOfBytes("twice twice ")))
			check(t, errors.Join(os.Remove(filepath.Join(storage, "verified")), os.Chmod(blob, 0o600),
				os.WriteFile(blob, []byte(c.kept), 0o600)))
			f := start(t)
			action.inputs = tree{"in": "twice ", "unread": "b"}
			r := f.run(t, action)
			assertOK(t, r)
			if r.GetCachedResult() != c.reused {
				t.Errorf("it is a former run's: %t", r.GetCachedResult())
			}
			if got, err := f.storage.ReadBlob(t.Context(), digestOfBytes("twice twice ")); err != nil || string(got) != "twice twice " {
				t.Errorf("storage has %q of what the result names: %v", got, err)
			}
		})
	}
}

// TestReusedOnAnotherMachine: records that are copied to another machine with their folder are not
// used there, because commands may find other files of the machine.
func TestReusedOnAnotherMachine(t *testing.T) {
	store, storage := &reuseStore{}, t.TempDir()
	for i, c := range []struct {
		machine string
		reused  bool
	}{{"one", false}, {"one", true}, {"two", false}, {"two", true}, {"one", true}} {
		t.Run(c.machine, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{storage: storage, change: func(o *Options) {
				o.Reuse, o.Setting.Program, o.Setting.Machine = reuse.New(store), "test", c.machine
			}})
			in := tree{"unread": strings.Repeat("x", i)}
			if r := f.run(t, spec{inputs: in, shell: "echo made > out", paths: []string{"out"}}); r.GetCachedResult() != c.reused {
				t.Errorf("run %d is a former run's: %t", i, r.GetCachedResult())
			}
		})
	}
}

// newFarmThatReuses has a Worker that spares runs. Its store makes metadata images, which
// would hide lookups.
func newFarmThatReuses(t *testing.T) (*farm, *reuseStore) {
	t.Helper()
	store := &reuseStore{}
	return newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		change: func(o *Options) { o.Reuse, o.Setting.Program = reuse.New(store), "test" },
	}), store
}

// reusedFrom returns what a response says of the run whose result it has, nil if it ran itself.
func reusedFrom(t *testing.T, r *repb.ExecuteResponse) *actionstats.Reused {
	t.Helper()
	for _, packed := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		var m actionstats.Reused
		if packed.MessageIs(&m) {
			check(t, packed.UnmarshalTo(&m))
			return &m
		}
	}
	return nil
}

// edited returns a copy of in where edits have other values; nil removes a path.
func (in tree) edited(edits tree) tree {
	out := maps.Clone(in)
	for path, v := range edits {
		if out[path] = v; v == nil {
			delete(out, path)
		}
	}
	return out
}

// TestReuse runs a command, edits its inputs, and wants the second run to be spared exactly
// where the first did not look.
func TestReuse(t *testing.T) {
	f, _ := newFarmThatReuses(t)
	search := `for d in inc1 inc2; do if [ -e $d/h ]; then cat $d/h > out; break; fi; done`
	for _, c := range []struct {
		name   string
		inputs tree
		shell  string
		paths  []string
		edits  tree
		reused bool
	}{
		{"edit an unread file", tree{"read": "1", "unread": "1"}, "cat read > out", nil, tree{"unread": "2"}, true},
		{"remove an unread file", tree{"read": "1", "unread": "1"}, "cat read > out", nil, tree{"unread": nil}, true},
		{"edit a read file", tree{"read": "1", "unread": "1"}, "cat read > out", nil, tree{"read": "2"}, false},
		{"remove a read file", tree{"read": "1"}, "cat read > out; true", nil, tree{"read": nil}, false},
		{"a directory in place of a read file", tree{"read": "1"}, "cat read > out; true", nil, tree{"read": nil, "read/x": "1"}, false},
		{"a header that shadows", tree{"inc1/x": "", "inc2/h": "1"}, search, nil, tree{"inc1/h": "2"}, false},
		{"a file beside", tree{"inc1/x": "", "inc2/h": "1"}, search, nil, tree{"inc1/y": "2", "inc2/y": "2"}, true},
		{"add to a listed directory", tree{"d/a": "1"}, "ls d > out", nil, tree{"d/b": "1"}, false},
		{"edit in a listed directory", tree{"d/a": "1", "d/e/b": "1"}, "ls -U d > out", nil, tree{"d/a": "22", "d/e/b": "22"}, true},
		{"size of a listed file", tree{"d/a": "1"}, "ls -l d > out", nil, tree{"d/a": "22"}, false},
		{"bytes of a file whose size was asked", tree{"a": "1"}, "stat -c %s a > out", nil, tree{"a": "2"}, true},
		{"size that was asked", tree{"a": "1"}, "stat -c %s a > out", nil, tree{"a": "22"}, false},
		{"executable bit", tree{"a": "1"}, "test -x a && echo yes > out; cat a", nil, tree{"a": executable("1")}, false},
		{"program", tree{"a": executable("#!/bin/sh\necho 1\n")}, "./a > out", nil, tree{"a": executable("#!/bin/sh\necho 2\n")}, false},
		{"retarget a link", tree{"link": symlink("a"), "a": "1", "b": "1"}, "cat link > out", nil, tree{"link": symlink("b")}, false},
		{"where a link leads", tree{"link": symlink("a"), "a": "1", "b": "1"}, "cat link > out", nil, tree{"a": "2"}, false},
		{"where no link leads", tree{"link": symlink("a"), "a": "1", "b": "1"}, "cat link > out", nil, tree{"b": "2"}, true},
		{"input in an output directory", tree{"out/in": "1"}, "echo new > out/new", nil, tree{"out/in": "2"}, false},
		{"input deep in an output directory", tree{"out/d/in": "1"}, "echo new > out/new", nil, tree{"out/d/in": "2"}, false},
		{"input for output", tree{"out": "1"}, "true", nil, tree{"out": "2"}, false},
		{"input moved to an output", tree{"a": "1"}, "mv a out", nil, tree{"a": "2"}, false},
		{"directory moved to an output", tree{"a/b/c": "1"}, "mv a out", nil, tree{"a/b/c": "2"}, false},
		{"link to an input", tree{"a": "1"}, "ln a out", nil, tree{"a": "2"}, false},
		{"input with another mode", tree{"out": "1"}, "chmod +x out", nil, tree{"out": "2"}, false},
		{"input that was appended to", tree{"out": "1"}, "echo x >> out", nil, tree{"out": "2"}, false},
		{"folder of an output", tree{"a": "1"}, "echo > d/out", []string{"d/out"}, tree{"d": "a file"}, false},
		{"beside an output", tree{"d/a": "1"}, "echo > d/out", []string{"d/out"}, tree{"d/a": "2", "d/b": "1"}, true},
		{"output that is not made", tree{"a": "1"}, "true", nil, tree{"out": "1"}, false},
		{"nothing that was read", tree{"a": "1"}, "echo > out", nil, tree{"a": nil, "b": "1"}, true},
		{"find", tree{"a/b/c": "1"}, "find . -name x > out", nil, tree{"a/b/d": "1"}, false},
		{"remove a directory", tree{"a/b": "1"}, "rmdir a || echo no > out", nil, tree{"a/b": nil, "a/": nil}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.paths == nil {
				c.paths = []string{"out"}
			}
			s := spec{inputs: c.inputs, shell: c.shell, paths: c.paths, env: map[string]string{"TEST": c.name}}
			first := f.start(t, s)
			was := first.result(t)
			assertOK(t, was)
			if reusedFrom(t, was) != nil {
				t.Fatal("the first run was spared")
			}
			s.inputs = c.inputs.edited(c.edits)
			second := f.start(t, s)
			r := second.result(t)
			from := reusedFrom(t, r)
			if (from != nil) != c.reused {
				t.Fatalf("run was spared: %v, want %v; %s", from != nil, c.reused, r.GetMessage())
			}
			if from != nil {
				f.assertReused(t, first, second, r)
			}
		})
	}
}

// assertReused checks that the response to the second action is that of the first, and says so.
func (f *farm) assertReused(t *testing.T, first, second *job, r *repb.ExecuteResponse) {
	t.Helper()
	from := reusedFrom(t, r)
	if from.GetAction() != first.digest.String() || from.GetWorker() != "host=test,position=0" ||
		from.GetCompleted().AsTime().Unix() <= 0 || from.GetPaths() == 0 {
		t.Errorf("reused from %v", from)
	}
	if !strings.Contains(r.GetMessage(), first.digest.String()) || !r.GetCachedResult() {
		t.Errorf("message %q, cached %v", r.GetMessage(), r.GetCachedResult())
	}
	strip := func(m *repb.ActionResult) *repb.ActionResult {
		m = proto.CloneOf(m)
		m.ExecutionMetadata = nil
		return m
	}
	was, now := f.cached(t, first), f.cached(t, second)
	if now == nil || !proto.Equal(strip(now), strip(was)) {
		t.Errorf("in the action cache: %v, want %v", now, was)
	}
	if marked := reusedFrom(t, &repb.ExecuteResponse{Result: now}); !proto.Equal(marked, from) {
		t.Errorf("in the action cache it is marked with %v, want %v", marked, from)
	}
}

// TestReuseIsRefused wants a command to be run where its result might not do.
func TestReuseIsRefused(t *testing.T) {
	s := spec{
		inputs: tree{"in": "in", "unread": "1", "dir/kept": "kept"},
		shell:  "cat in > out; echo made > dir/made", paths: []string{"out", "dir"},
	}
	again := spec{inputs: s.inputs.edited(tree{"unread": "2"}), shell: s.shell, paths: s.paths}
	for _, c := range []struct {
		name   string
		first  func(*spec)
		spoil  func(t *testing.T, f *farm, store *reuseStore, j *job)
		reused bool
	}{
		{"nothing", nil, nil, true},
		{"record damaged", nil, func(_ *testing.T, _ *farm, s *reuseStore, _ *job) { s.damage() }, false},
		{"output gone", nil, func(t *testing.T, f *farm, _ *reuseStore, _ *job) { f.lose(t, "made\n") }, false},
		{"unchanged output gone", nil, func(t *testing.T, f *farm, _ *reuseStore, _ *job) { f.lose(t, "kept") }, false},
		{"client wants a run", nil, func(t *testing.T, _ *farm, _ *reuseStore, j *job) {
			packed, err := anypb.New(&actionstats.Request{SkipCacheLookup: true})
			check(t, err)
			j.desired.AuxiliaryMetadata = append(j.desired.AuxiliaryMetadata, packed)
		}, false},
		{"do not cache", func(s *spec) { s.doNotCache = true }, func(_ *testing.T, _ *farm, _ *reuseStore, j *job) {
			j.desired.Action.DoNotCache = true
		}, false},
		{"do not cache the second", nil, func(_ *testing.T, _ *farm, _ *reuseStore, j *job) {
			j.desired.Action.DoNotCache = true
		}, false},
		{"do not cache the first", func(s *spec) { s.doNotCache = true }, nil, false},
		{"another salt", nil, func(_ *testing.T, _ *farm, _ *reuseStore, j *job) {
			j.desired.Action.Salt = []byte("salt")
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, store := newFarmThatReuses(t)
			first := s
			if c.first != nil {
				c.first(&first)
			}
			assertOK(t, f.run(t, first))
			f.assertGood(t) // when that is done, the first was remembered
			j := f.job(t, again)
			if c.spoil != nil {
				c.spoil(t, f, store, j)
			}
			f.scheduler.work <- j
			r := j.result(t)
			if got := reusedFrom(t, r) != nil; got != c.reused {
				t.Errorf("run was spared: %v, want %v", got, c.reused)
			}
		})
	}
}

// TestFailuresAreNotReused: only what may be in the action cache may be reused.
func TestFailuresAreNotReused(t *testing.T) {
	f, store := newFarmThatReuses(t)
	for _, shell := range []string{"cat in; exit 1", "cat in; kill -9 $$", "cat in gone; exit 0"} {
		f.run(t, spec{inputs: tree{"in": "in", "gone": absent("gone")}, shell: shell})
	}
	f.assertGood(t)
	f.drain()
	f.wait(t)
	store.mu.Lock()
	defer store.mu.Unlock()
	if n := len(store.records); n != 1 {
		t.Errorf("%d records, want that of the good action", n)
	}
}

func TestReuseNeedsFUSE(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	roots, err := vfs.Open(vfs.Options{
		MountDir: filepath.Join(dir, "mount"), UpperDir: filepath.Join(dir, "upper"), Method: vfs.HardLink,
	})
	unavailable(t, err)
	t.Cleanup(func() { check(t, roots.Close()) })
	o := Options{Roots: roots, Reuse: reuse.New(&reuseStore{}), Setting: Setting{Program: "test"}}
	if err := o.checkReuse(); err == nil || !strings.Contains(err.Error(), "hardlink") {
		t.Errorf("with hard links: %v", err)
	}
}

// lose removes a blob from storage and from the worker's store.
func (f *farm) lose(t *testing.T, content string) {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(content))
	for _, s := range []*disk.Store{f.storage, f.local} {
		names, err := filepath.Glob(filepath.Join(s.Dir(), "*", "*", d.Hash()+"*"))
		check(t, err)
		for _, name := range names {
			check(t, os.Remove(name))
		}
		if b, err := s.ReadBlob(t.Context(), d); !errors.Is(err, cas.ErrNotFound) { // so that the store knows
			t.Fatalf("%q is still there: %v", b, err)
		}
	}
}
