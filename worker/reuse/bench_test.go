package reuse

import (
	"fmt"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
)

// A go build of a small program looks at some 8,000 paths of an SDK with 15,000 files in
// 1,600 folders, a C++ compiler at 1,000 of them.
func benchmarkRun(b *testing.B, opened int) (*Records, record.Key, *lookback.Recorder, [2]lookback.Tree) {
	in, seen, src := files{}, &lookback.Recorder{}, &fakeSource{}
	for i := range 15000 {
		dir := fmt.Sprintf("sdk/lib%d/part%d", i%40, i%1600)
		name := fmt.Sprintf("%s/file%d", dir, i)
		in[name] = name
		if i < opened {
			seen.Look("sdk", tree.LookUp)
			seen.Look(fmt.Sprintf("sdk/lib%d", i%40), tree.LookUp)
			seen.Look(dir, tree.LookUp)
			seen.Look(name, tree.LookUp|tree.LookInside)
		}
	}
	k, ok := KeyOf("", fn, &repb.Action{}, nil)
	if !ok {
		b.Fatal("no key")
	}
	// In the second tree there is a new file in each of 40 folders.
	edits := files{}
	for i := range 40 {
		edits[fmt.Sprintf("sdk/lib%d/new", i)] = "new"
	}
	return New(&fakeStore{}), k, seen, [2]lookback.Tree{src.tree(b, in), src.tree(b, in.edited(edits))}
}

func BenchmarkFind(b *testing.B) {
	for _, opened := range []int{800, 6000} {
		r, k, seen, trees := benchmarkRun(b, opened)
		if err := r.Keep(b.Context(), k, trees[0], seen, runOf("was")); err != nil {
			b.Fatal(err)
		}
		bytes := len(r.store.(*fakeStore).values[k])
		b.Run(fmt.Sprintf("%d_opened", opened), func(b *testing.B) {
			for b.Loop() {
				if _, o, why := r.Find(b.Context(), k, trees[1], fakeStorage{}); o != lookback.Reused {
					b.Fatal(o, why)
				}
			}
			b.ReportMetric(float64(bytes), "record-bytes")
		})
	}
}

func BenchmarkKeep(b *testing.B) {
	for _, opened := range []int{800, 6000} {
		r, k, seen, trees := benchmarkRun(b, opened)
		b.Run(fmt.Sprintf("%d_opened", opened), func(b *testing.B) {
			for b.Loop() {
				if err := r.Keep(b.Context(), k, trees[0], seen, runOf("was")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
