package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkRoot is the cost of an input root that nobody looks at.
func BenchmarkRoot(b *testing.B) {
	f := openFS(b, Options{})
	src := newFakeSource(b)
	root := src.tree(b, "file")
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
	for name, cached := range map[string]bool{"passthrough": false, "cached": true} {
		b.Run(name, func(b *testing.B) {
			f := openFS(b, Options{DisablePassthrough: cached})
			src := newFakeSource(b)
			var paths []string
			for i := range files {
				paths = append(paths, fmt.Sprintf("file-%d", i))
			}
			root := src.tree(b, paths...)
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
