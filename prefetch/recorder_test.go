package prefetch

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/cas/tree"
)

func TestRecorder(t *testing.T) {
	var r Recorder
	if len(r.Hashes()) != 0 || r.Has(RootHash) {
		t.Error("a new recorder has paths")
	}
	r.Read("a/b/file", tree.File) // below a shared image nobody looks into a/b
	r.Read("link", tree.Symlink)
	r.Read("", tree.Dir)
	r.Read("", tree.Dir)
	r.Read("empty", tree.Dir)
	want := hashesOf("a/b/file", "a/b", "a", "", "empty")
	if got := r.Hashes(); !slices.Equal(got, want) {
		t.Errorf("hashes %x, want %x", got, want)
	}
	r.Read("a/c/file", tree.File) // after somebody has asked
	for path, want := range map[string]bool{
		"": true, "a/b": true, "a/c": true, "a/c/file": true, "link": false, "a/b/other": false,
	} {
		if r.Has(HashPath(path)) != want {
			t.Errorf("Has(%q) = %t", path, !want)
		}
	}
}

// TestRecorderTogether is for the race detector, and counts what many find at once.
func TestRecorderTogether(t *testing.T) {
	const readers, each = 8, 500
	var r Recorder
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			for j := range each {
				r.Read(fmt.Sprintf("dir%d/%d", i, j), tree.File)
				if j%100 == 0 && !r.Has(HashPath(fmt.Sprintf("dir%d", i))) {
					t.Errorf("dir%d is not there", i)
				}
			}
		})
	}
	wg.Wait()
	if n := len(r.reads); n != readers*each {
		t.Errorf("%d reads", n)
	}
	if n := len(r.Hashes()); n != 1+readers+readers*each {
		t.Errorf("%d hashes", n)
	}
}

func TestRecorderIsBounded(t *testing.T) {
	var r Recorder
	for range maxRecorded + 100 {
		r.Read("a", tree.File)
	}
	r.Read("b", tree.File)
	if len(r.reads) != maxRecorded || r.Has(HashPath("b")) || !r.Has(HashPath("a")) {
		t.Errorf("%d reads are kept, also of the last path: %t", len(r.reads), r.Has(HashPath("b")))
	}
}

// TestRecorderOfLongPaths: what a command reads may not take the memory of the worker.
func TestRecorderOfLongPaths(t *testing.T) {
	var r Recorder
	long := strings.Repeat("/path", 800)[1:]
	for range 2 * maxRecordedBytes / len(long) {
		r.Read(long, tree.File)
	}
	if bytes := len(r.reads) * len(long); bytes > maxRecordedBytes || bytes < maxRecordedBytes/2 {
		t.Errorf("%d bytes are kept, at most %d may be", bytes, maxRecordedBytes)
	}
}

// BenchmarkRecorder is what a read costs that is reported, in runs of 10,000.
func BenchmarkRecorder(b *testing.B) {
	const run = 10_000
	paths := numbered("external/sdk/include/dir/%d.h", run)
	b.Run("alone", func(b *testing.B) {
		r := &Recorder{}
		for i := 0; b.Loop(); i++ {
			if i%run == 0 {
				r = &Recorder{}
			}
			r.Read(paths[i%run], tree.File)
		}
	})
	b.Run("together", func(b *testing.B) {
		var r Recorder
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				r.Read(paths[i%run], tree.File)
			}
		})
	})
	b.Run("hashes", func(b *testing.B) { // of a whole run, at its end
		for b.Loop() {
			var r Recorder
			for _, p := range paths {
				r.Read(p, tree.File)
			}
			r.Hashes()
		}
	})
}
