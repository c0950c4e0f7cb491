package worker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/profiles"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/vfs"
)

// memoryStore is a record.Hints.
type memoryStore struct {
	mu      sync.Mutex
	records map[record.Key][]byte
	fails   bool
}

func (s *memoryStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return nil, os.ErrClosed
	}
	b, ok := s.records[k]
	if !ok {
		return nil, record.ErrNotFound
	}
	return b, nil
}

func (s *memoryStore) Put(_ context.Context, k record.Key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails {
		return os.ErrClosed
	}
	if s.records == nil {
		s.records = map[record.Key][]byte{}
	}
	s.records[k] = append([]byte(nil), value...)
	return nil
}

func raceOf(t *testing.T, r *repb.ExecuteResponse) *actionstats.Prefetch {
	t.Helper()
	for _, packed := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		var m actionstats.Prefetch
		if packed.MessageIs(&m) {
			check(t, packed.UnmarshalTo(&m))
			return &m
		}
	}
	t.Fatal("the result does not say what was fetched ahead")
	return nil
}

// TestRace runs an action, has its worker forget all blobs, and runs a similar
// one: what the first read is fetched ahead of the second, and nothing else is.
func TestRace(t *testing.T) {
	records := &memoryStore{}
	inputs := func(own string) tree {
		in := tree{"own": own}
		for i := range 40 {
			in[fmt.Sprintf("used%d/file", i)] = fmt.Sprintf("used %d", i)
			in[fmt.Sprintf("unused%d/file", i)] = fmt.Sprintf("unused %d", i)
		}
		return in
	}
	const shell = "cat used*/file own > out"
	for i, want := range []string{"none", "exact"} {
		f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE}, prefetch.NewProfiles(records, prefetch.ProfilesOptions{}))
		r := f.run(t, spec{inputs: inputs(fmt.Sprint(i)), shell: shell, paths: []string{"out"}})
		assertOK(t, r)
		got := raceOf(t, r)
		if got.GetProfile() != want {
			t.Errorf("run %d: profile %q, want %q", i, got.GetProfile(), want)
		}
		if i == 1 {
			if n := got.GetFiles().GetFiles(); n != 41 || got.GetLocal().GetFiles() > 0 || got.GetUnused().GetFiles() > 2 {
				t.Errorf("fetched ahead: %v", got)
			}
			for j := range 40 {
				if d := digestOfBytes(fmt.Sprintf("unused %d", j)); f.reads.count(d) > 0 {
					t.Errorf("unused%d/file was fetched", j)
				}
				if d := digestOfBytes(fmt.Sprintf("used %d", j)); f.reads.count(d) != 1 {
					t.Errorf("used%d/file was fetched %d times", j, f.reads.count(d))
				}
			}
		}
		f.drain()
		f.wait(t)
	}
	before := records.readsOf(t)
	if len(before) != 2 {
		t.Errorf("%d profiles are remembered, want an exact and a coarse one", len(before))
	}
	for k, kept := range before {
		want := 41 // the root, and those with used files
		if k.Bucket != names.ProfileBucket {
			want = 0
		}
		if n := len(kept.GetDirectories().GetSizes()); n != want {
			t.Errorf("%s: %d directories are remembered, want %d", k.Bucket, n, want)
		}
	}
	// A failure teaches nothing but how wrong a profile was.
	f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE}, prefetch.NewProfiles(records, prefetch.ProfilesOptions{}))
	r := f.run(t, spec{inputs: inputs("x"), shell: "cat unused*/file; exit 3"})
	if r.GetResult().GetExitCode() != 3 {
		t.Errorf("exit code %d", r.GetResult().GetExitCode())
	}
	f.drain()
	f.wait(t)
	if after := records.readsOf(t); !maps.EqualFunc(before, after, func(a, b *profiles.Record) bool { return proto.Equal(a, b) }) {
		t.Errorf("a failed run changed profiles: %v, before %v", after, before)
	}
}

// readsOf returns the profiles in s, without how well they predicted.
func (s *memoryStore) readsOf(t *testing.T) map[record.Key]*profiles.Record {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[record.Key]*profiles.Record{}
	for k, value := range s.records {
		found[k] = &profiles.Record{}
		check(t, proto.Unmarshal(value, found[k]))
		found[k].RightPerMille = nil
	}
	return found
}

// TestMisledRuns: a run that reads other files than its profile says changes what the next one is
// prefetched by, whether it succeeds or fails.
func TestMisledRuns(t *testing.T) {
	const shell = "if test -e other; then cat b*/file; else cat a*/file; fi; exit $(cat code)"
	for code, want := range map[string]string{"0": "exact", "3": "coarse"} {
		f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE},
			prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{}))
		runs := 0
		run := func(files tree) *actionstats.Prefetch {
			runs++ // no run has files of another one
			for i := range 20 {
				files[fmt.Sprintf("a%d/file", i)] = fmt.Sprintf("a %d of %d", i, runs)
				files[fmt.Sprintf("b%d/file", i)] = fmt.Sprintf("b %d of %d", i, runs)
			}
			return raceOf(t, f.run(t, spec{inputs: files, shell: shell}))
		}
		if got := run(tree{"code": "0"}).GetProfile(); got != "none" {
			t.Errorf("first run: profile %q", got)
		}
		if got := run(tree{"code": code, "other": ""}).GetProfile(); got != "exact" {
			t.Errorf("a run with exit code %s: profile %q", code, got)
		}
		got := run(tree{"code": "0", "other": ""})
		if got.GetProfile() != want {
			t.Errorf("after a run with exit code %s: profile %q, want %q", code, got.GetProfile(), want)
		}
		if n := got.GetUnused().GetFiles(); want == "exact" && n > 0 {
			t.Errorf("%d files came that the run before did not read", n)
		}
	}
}

// TestCoarseByTool: what a program read tells about its next run with other arguments, and nothing
// of another program that the same shell runs, also where the client says nothing of what it is
// doing.
func TestCoarseByTool(t *testing.T) {
	f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE},
		prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{}))
	for i, want := range []string{"none", "coarse", "coarse"} {
		r := f.run(t, spec{inputs: tree{"a/file": "a", "own": fmt.Sprint(i)}, shell: fmt.Sprintf("cat a/file own; : %d", i)})
		assertOK(t, r)
		if got := raceOf(t, r).GetProfile(); got != want {
			t.Errorf("action %d: profile %q, want %q", i, got, want)
		}
	}
	r := f.run(t, spec{inputs: tree{"a/file": "a"}, shell: "head -c 1 a/file"})
	assertOK(t, r)
	if got := raceOf(t, r).GetProfile(); got != "none" {
		t.Errorf("another program: profile %q", got)
	}
}

// TestInputRootSize: the result says how much of how much was read.
func TestInputRootSize(t *testing.T) {
	f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE},
		prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{}))
	r := f.run(t, spec{inputs: tree{"a/file": "12345", "b/c": "123"}, shell: "cat a/file b/c"})
	assertOK(t, r)
	for _, packed := range r.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		var m actionstats.InputRoot
		if !packed.MessageIs(&m) {
			continue
		}
		check(t, packed.UnmarshalTo(&m))
		if m.GetRootFiles() != 2 || m.GetRootBytes() != 8 || !m.GetRootWhole() {
			t.Errorf("%v", &m)
		}
		return
	}
	t.Error("the result does not say what was read")
}

// TestRaceWithoutStore: profiles that cannot be stored change no result.
func TestRaceWithoutStore(t *testing.T) {
	f := newFarmThatRemembers(t, vfs.Options{Method: vfs.FUSE},
		prefetch.NewProfiles(&memoryStore{fails: true}, prefetch.ProfilesOptions{}))
	for i := range 2 {
		r := f.run(t, spec{inputs: tree{"a/file": "a", "b/file": fmt.Sprint(i)}, shell: "cat a/file b/file"})
		assertOK(t, r)
		if got, want := string(r.GetResult().GetStdoutRaw()), fmt.Sprintf("a%d", i); got != want {
			t.Errorf("stdout is %q, want %q", got, want)
		}
		if got, want := raceOf(t, r).GetProfile(), []string{"none", "exact"}[i]; got != want {
			t.Errorf("profile is %q, want %q: it is remembered while the worker is up", got, want)
		}
	}
}
