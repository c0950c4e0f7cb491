package reuse

import (
	"crypto/sha256"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/records/lookback"
)

// FuzzRecord stores arbitrary bytes with the right hash. A run is reused only if the tree allows
// it, and the next run is recorded and found.
func FuzzRecord(f *testing.F) {
	src, store, k := &fakeSource{}, &fakeStore{}, keyOf(f, &repb.Action{})
	was := files{"a/b": "b", "a/c/d": "d", "link@": "a/b"}
	for _, looks := range [][]string{{"a", "a/b<"}, {"a", "a/", "link<", "none"}, {"a", "a/c<"}, {"a", "a/b", "a/c", "a/c/"}} {
		check(f, New(store).Keep(f.Context(), k, src.tree(f, was), recorded(looks...), runOf("was")))
		record := store.values[k][sha256.Size:]
		f.Add(record)
		f.Add(record[:len(record)/2])
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		sum := sha256.Sum256(record)
		src, store := &fakeSource{}, &fakeStore{}
		check(t, store.Put(t.Context(), k, append(sum[:], record...)))
		r, now := New(store), src.tree(t, was)
		run, o, _ := r.Find(t.Context(), k, now, fakeStorage{})
		if o == lookback.Reused && (run.Result == nil || run.Action.IsZero()) {
			t.Errorf("%v is reused", run)
		}
		next := runOf("next")
		check(t, r.Keep(t.Context(), k, now, recorded("a", "a/b<"), next))
		run, o, why := r.Find(t.Context(), k, now, fakeStorage{})
		if o != lookback.Reused || run.Action != next.Action || !slices.Equal(run.Blobs, next.Blobs) {
			t.Errorf("%s %q %v", o, why, run)
		}
	})
}
