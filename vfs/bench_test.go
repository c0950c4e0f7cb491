package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// BenchmarkRoot is the cost of an input root that nobody looks at.
func BenchmarkRoot(b *testing.B) {
	f := openFS(b, Options{})
	src := vfstest.NewSource(b)
	root := src.Tree(b, "file")
	for i := 0; b.Loop(); i++ {
		r, err := f.NewRoot(b.Context(), RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
		if err != nil {
			b.Fatal(err)
		}
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFirstOpens is the cost of the first open, read and close of a file in a new root.
func BenchmarkFirstOpens(b *testing.B) {
	const files = 1000
	for name, o := range map[string]Options{
		"passthrough": {}, "cached": {DisablePassthrough: true}, "counted": {Metrics: prometheus.NewRegistry()},
	} {
		b.Run(name, func(b *testing.B) {
			if o.Metrics != nil {
				o.Metrics = prometheus.NewRegistry() // each FS has its own
			}
			f := openFS(b, o)
			src := vfstest.NewSource(b)
			var paths []string
			for i := range files {
				paths = append(paths, fmt.Sprintf("file-%d", i))
			}
			root := src.Tree(b, paths...)
			for i := 0; b.Loop(); i++ {
				r, err := f.NewRoot(b.Context(), RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
				if err != nil {
					b.Fatal(err)
				}
				for _, p := range paths {
					if _, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil {
						b.Fatal(err)
					}
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*files), "µs/file")
		})
	}
}

// BenchmarkLinkedRoot is the cost of a root of hard links, whose files were
// linked before, kept as a whole or not: "show" until the command can start, "hide" until its answer can
// go out, "look" to see that no input was changed.
func BenchmarkLinkedRoot(b *testing.B) {
	const dirs, files = 600, 25
	var paths []string
	for i := range dirs {
		for j := range files {
			paths = append(paths, fmt.Sprintf("dir-%d/file-%d-%d", i, i, j))
		}
	}
	for _, way := range []string{"kept", "overlay", "bare"} {
		b.Run(way, func(b *testing.B) {
			f := openFS(b, Options{Method: HardLink, DisableOverlay: way == "bare"})
			if way == "overlay" {
				f.kept = nil
			}
			src := vfstest.NewSource(b)
			root := src.Tree(b, paths...)
			var cold, show, look, hide time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				r, err := f.NewRoot(b.Context(), RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
				if err != nil {
					b.Fatal(err)
				}
				shown := time.Now()
				if i == 0 {
					cold = shown.Sub(start)
				} else {
					show += shown.Sub(start)
				}
				err = r.Intact()
				looked := time.Now()
				if err := errors.Join(err, r.Close()); err != nil {
					b.Fatal(err)
				}
				look += looked.Sub(shown)
				hide += time.Since(looked)
				f.trash.Wait() // not what is measured
			}
			b.ReportMetric(float64(cold.Milliseconds()), "ms-first")
			for name, d := range map[string]time.Duration{"show": show, "look": look, "hide": hide} {
				b.ReportMetric(float64(d.Microseconds())/1000/float64(max(b.N-1, 1)), "ms-"+name)
			}
		})
	}
}
