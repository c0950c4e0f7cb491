package reuse

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

// recorded returns a Recorder that saw looks: "a/b" was looked up, "a/b<" opened or followed,
// "a/b/" listed.
func recorded(looks ...string) *lookback.Recorder {
	r := &lookback.Recorder{}
	for _, l := range looks {
		switch {
		case strings.HasSuffix(l, "<"):
			r.Look(strings.TrimSuffix(l, "<"), tree.LookUp|tree.LookInside)
		case strings.HasSuffix(l, "/"):
			r.Look(strings.TrimSuffix(l, "/"), tree.LookThrough)
		default:
			r.Look(l, tree.LookUp)
		}
	}
	return r
}

// TestEdits lays what a run saw over a tree that was edited.
func TestEdits(t *testing.T) {
	before := files{
		"src/main.c": "main", "src/unread.c": "unread", "inc1/other.h": "other", "inc2/used.h": "used",
		"list/a": "a", "list/b/c": "c", "link@": "src/main.c", "tool*": "tool", "stat": "12345", "whole/x/y": "y",
		"lstat@": "abc",
	}
	looks := []string{
		"src", "src/main.c<", "inc1", "inc1/used.h", "inc2", "inc2/used.h<", "list", "list/", "link<", "tool<", "stat",
		"inc3", "lstat", "whole<",
	}
	for _, c := range []struct {
		name  string
		edits files
		want  string // the path that differs; empty: the run can be spared
	}{
		{"nothing", nil, ""},
		{"edit an unread file", files{"src/unread.c": "new"}, ""},
		{"remove an unread file", files{"src/unread.c": "-"}, ""},
		{"add a file nobody looks up", files{"src/new.c": "new", "top": "new"}, ""},
		{"edit a read file", files{"src/main.c": "new!"}, "src/main.c"},
		{"remove a read file", files{"src/main.c": "-"}, "src/main.c"},
		{"a directory in place of a read file", files{"src/main.c": "-", "src/main.c/x": "main"}, "src/main.c"},
		{"a link in place of a read file", files{"src/main.c": "-", "src/main.c@": "main"}, "src/main.c"},
		{"a file in place of a directory", files{"inc1/other.h": "-", "inc1": "x"}, "inc1"},
		{"a header that shadows", files{"inc1/used.h": "used"}, "inc1/used.h"},
		{"a directory that was not there", files{"inc3/x": "x"}, "inc3"},
		{"add to a listed directory", files{"list/new": "new"}, "list/"},
		{"remove from a listed directory", files{"list/a": "-"}, "list/"},
		{"another kind in a listed directory", files{"list/a": "-", "list/a@": "a"}, "list/"},
		{"edit in a listed directory", files{"list/a": "new", "list/b/c": "new"}, ""},
		{"retarget a link", files{"link@": "src/none.c"}, "link"},
		{"make a read file executable", files{"src/main.c": "-", "src/main.c*": "main"}, "src/main.c"},
		{"make an unread file executable", files{"src/unread.c": "-", "src/unread.c*": "unread"}, ""},
		{"make a tool not executable", files{"tool*": "-", "tool": "tool"}, "tool"},
		{"other bytes of the size that was looked at", files{"stat": "54321"}, ""},
		{"another size", files{"stat": "123456"}, "stat"},
		{"another time", files{"stat": "-", "stat~": "12345"}, "stat"},
		{"another target of the length that was looked at", files{"lstat@": "xyz"}, ""},
		{"another length of a target", files{"lstat@": "abcd"}, "lstat"},
		{"edit deep in what was taken whole", files{"whole/x/y": "new"}, "whole"},
		{"add deep in what was taken whole", files{"whole/x/z": "z"}, "whole"},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := &fakeSource{}
			r, k := New(&fakeStore{}), keyOf(t, &repb.Action{})
			was := runOf("was")
			check(t, r.Keep(t.Context(), k, src.tree(t, before), recorded(looks...), was))
			run, o, why := r.Find(t.Context(), k, src.tree(t, before.edited(c.edits)), fakeStorage{})
			if c.want != "" {
				if o != lookback.Differs || why != c.want {
					t.Errorf("%s %q, want differs %q", o, why, c.want)
				}
				return
			}
			if o != lookback.Reused || run.Action != was.Action || run.Worker != was.Worker || !sameResult(run.Result, was.Result) ||
				run.Result.GetExecutionMetadata() != nil || !slices.Equal(run.Blobs, was.Blobs) || run.Paths != len(looks)-1 {
				t.Errorf("%s %q %v", o, why, run)
			}
		})
	}
}

// TestKeys wants a run to be spared for the same command alone.
func TestKeys(t *testing.T) {
	base := func() *repb.Action {
		return &repb.Action{CommandDigest: digest.Of(fn, []byte("command")).Proto()}
	}
	platform := &repb.Platform{Properties: []*repb.Platform_Property{{Name: "a", Value: "b"}}}
	for name, c := range map[string]struct {
		change func(*repb.Action)
		same   bool
	}{
		"input root": {func(a *repb.Action) { a.InputRootDigest = digest.Of(fn, nil).Proto() }, true},
		"command":    {func(a *repb.Action) { a.CommandDigest = digest.Of(fn, nil).Proto() }, false},
		"platform":   {func(a *repb.Action) { a.Platform = platform }, false},
		"salt":       {func(a *repb.Action) { a.Salt = []byte("salt") }, false},
	} {
		changed := base()
		c.change(changed)
		if same := keyOf(t, changed) == keyOf(t, base()); same != c.same {
			t.Errorf("another %s: same key %v", name, same)
		}
	}
	if k, _ := KeyOf("other", fn, base(), nil); k == keyOf(t, base()) {
		t.Error("two instance names have the same key")
	}
	a, _ := KeyOf("", fn, base(), []byte("a"))
	b, _ := KeyOf("", fn, base(), []byte("b"))
	if none, _ := KeyOf("", fn, base(), nil); a == b || a == none {
		t.Error("two ways to run a command have the same key")
	}
}

// TestOldRecordsAreNotFound: records from before the key included how commands run are never found.
func TestOldRecordsAreNotFound(t *testing.T) {
	src, store := &fakeSource{}, &fakeStore{}
	r, tree := New(store), src.tree(t, files{"in": "content"})
	d, _, err := digest.OfMessage(fn, &repb.Action{})
	check(t, err)
	old := record.Key{Bucket: "reuse-1", Instance: "instance", Digest: d}
	check(t, r.Keep(t.Context(), old, tree, recorded("in<"), runOf("old")))
	if _, outcome, _ := r.Find(t.Context(), old, tree, fakeStorage{}); outcome != lookback.Reused {
		t.Fatalf("under the old key: %s", outcome)
	}
	for _, how := range [][]byte{nil, []byte("how")} {
		k, _ := KeyOf("instance", fn, &repb.Action{}, how)
		if _, outcome, _ := r.Find(t.Context(), k, tree, fakeStorage{}); outcome != lookback.Unknown {
			t.Errorf("under a new key: %s", outcome)
		}
	}
}

// TestSeveralRuns wants any of the last runs to be found, and old ones to go.
func TestSeveralRuns(t *testing.T) {
	src, store := &fakeSource{}, &fakeStore{}
	r, k := New(store), keyOf(t, &repb.Action{})
	treeOf := func(i int) lookback.Tree {
		return src.tree(t, files{"in": fmt.Sprint("content ", i), "unread": fmt.Sprint(i)})
	}
	for i := range sharedruns.MaxRuns + 2 {
		for range 2 { // a run that saw the same takes the place of the one before
			check(t, r.Keep(t.Context(), k, treeOf(i), recorded("in<"), runOf(fmt.Sprint(i))))
		}
	}
	for i := range sharedruns.MaxRuns + 2 {
		run, o, _ := r.Find(t.Context(), k, treeOf(i), fakeStorage{})
		if want := i >= 2; (o == lookback.Reused) != want {
			t.Errorf("run %d: %s", i, o)
		} else if want && string(run.Result.GetStdoutRaw()) != fmt.Sprint(i) {
			t.Errorf("run %d is %q", i, run.Result.GetStdoutRaw())
		}
	}
}

// TestFindIsCareful gives everything a chance to go wrong.
func TestFindIsCareful(t *testing.T) {
	failure := errors.New("does not work")
	for _, c := range []struct {
		name    string
		spoil   func(*fakeStore, *fakeSource, *fakeStorage)
		outcome lookback.Outcome
	}{
		{"nothing", func(*fakeStore, *fakeSource, *fakeStorage) {}, lookback.Reused},
		{"no record", func(s *fakeStore, _ *fakeSource, _ *fakeStorage) { clear(s.values) }, lookback.Unknown},
		{"store", func(s *fakeStore, _ *fakeSource, _ *fakeStorage) { s.fails = failure }, lookback.Failed},
		{"directories", func(_ *fakeStore, s *fakeSource, _ *fakeStorage) { s.fails = failure }, lookback.Failed},
		{"storage", func(_ *fakeStore, _ *fakeSource, s *fakeStorage) { s.fails = failure }, lookback.Failed},
		{"an output is gone", func(_ *fakeStore, _ *fakeSource, s *fakeStorage) {
			s.lacks = map[digest.Digest]bool{digest.Of(fn, []byte("blob of was")): true}
		}, lookback.Gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			src, store, storage := &fakeSource{}, &fakeStore{}, &fakeStorage{}
			r, k := New(store), keyOf(t, &repb.Action{})
			check(t, r.Keep(t.Context(), k, src.tree(t, files{"in": "in"}), recorded("in<"), runOf("was")))
			now := src.tree(t, files{"in": "in", "unread": "unread"})
			c.spoil(store, src, storage)
			if _, o, why := r.Find(t.Context(), k, now, storage); o != c.outcome {
				t.Errorf("%s %q, want %s", o, why, c.outcome)
			}
		})
	}
}

// TestDamagedRecords changes and truncates a record everywhere. Damaged records are never reused,
// and the next run is recorded again.
func TestDamagedRecords(t *testing.T) {
	src, store := &fakeSource{}, &fakeStore{}
	r, k := New(store), keyOf(t, &repb.Action{})
	now := src.tree(t, files{"in": "in"})
	keep := func() { check(t, r.Keep(t.Context(), k, now, recorded("in<"), runOf("was"))) }
	keep()
	whole := store.values[k]
	for i := range whole {
		for _, damaged := range [][]byte{whole[:i], append(append(slices.Clone(whole[:i]), whole[i]^1), whole[i+1:]...)} {
			store.values[k] = damaged
			if _, o, _ := r.Find(t.Context(), k, now, fakeStorage{}); o != lookback.Failed {
				t.Fatalf("byte %d of %d: %s", i, len(whole), o)
			}
		}
	}
	keep()
	if _, o, why := r.Find(t.Context(), k, now, fakeStorage{}); o != lookback.Reused {
		t.Errorf("after another run: %s %s", o, why)
	}
}

// TestTooMuch wants a run that cannot be accounted for to be forgotten.
func TestTooMuch(t *testing.T) {
	src, store := &fakeSource{}, &fakeStore{}
	r, k := New(store), keyOf(t, &repb.Action{})
	now := src.tree(t, files{"in": "in"})
	many := &lookback.Recorder{}
	for i := range lookback.MaxPaths + 1 {
		many.Look(fmt.Sprint(i), tree.LookUp)
	}
	whole := &lookback.Recorder{}
	whole.Look("", tree.LookInside)
	large := runOf("large")
	large.Result.StdoutRaw = make([]byte, sharedruns.MaxBytes)
	for name, c := range map[string]struct {
		seen *lookback.Recorder
		run  lookback.Run
	}{
		"paths": {many, runOf("")}, "the whole root": {whole, runOf("")}, "bytes": {&lookback.Recorder{}, large},
		"into what is no directory": {recorded("in/x"), runOf("")}, "into what is not there": {recorded("no/x"), runOf("")},
	} {
		if err := r.Keep(t.Context(), k, now, c.seen, c.run); err == nil || len(store.values) > 0 {
			t.Errorf("%s: %v, %d records", name, err, len(store.values))
		}
	}
	// Large ones push others out.
	for i := range sharedruns.MaxRuns {
		run := runOf(fmt.Sprint(i))
		run.Result.StdoutRaw = make([]byte, sharedruns.MaxBytes*2/5)
		at := src.tree(t, files{"in": strings.Repeat("x", i)})
		check(t, r.Keep(t.Context(), k, at, recorded("in<"), run))
		if n := len(store.values[k]); n > sharedruns.MaxBytes {
			t.Errorf("a record has %d bytes", n)
		}
	}
	known, err := r.get(t.Context(), k)
	check(t, err)
	if len(known.GetRuns()) != 2 {
		t.Errorf("%d runs are kept", len(known.GetRuns()))
	}
}

// TestFetching wants directories that are not local to come in one call a level, and those that
// are as they were not at all.
func TestFetching(t *testing.T) {
	src := &fakeSource{}
	r, k := New(&fakeStore{}), keyOf(t, &repb.Action{})
	before, looks := files{}, []string{}
	for i := range 10 {
		before[fmt.Sprintf("d%d/e/read", i)] = "read"
		before[fmt.Sprintf("same%d/e/read", i)] = "read"
		looks = append(looks, fmt.Sprintf("d%d/e/read<", i), fmt.Sprintf("same%d/e/read<", i))
	}
	check(t, r.Keep(t.Context(), k, src.tree(t, before), recorded(looks...), runOf("was")))
	edits := files{}
	for i := range 10 {
		edits[fmt.Sprintf("d%d/e/unread", i)] = fmt.Sprint(i)
	}
	now := src.tree(t, before.edited(edits))
	src.local = map[digest.Digest]bool{}
	if _, o, why := r.Find(t.Context(), k, now, fakeStorage{}); o != lookback.Reused {
		t.Errorf("%s %s", o, why)
	}
	if !slices.Equal(src.loads, []int{1, 10, 10}) {
		t.Errorf("directories fetched: %v", src.loads)
	}
}
