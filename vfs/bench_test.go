package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// BenchmarkRoot measures the cost of an unused input root.
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

// BenchmarkRootOfLinks measures the cost of a small root of hard links of another owner, with the
// original ownership or shown as his.
func BenchmarkRootOfLinks(b *testing.B) {
	owner := Owner{UID: 1900000000, GID: 1900000000}
	namespace, err := sandbox.UserNamespace(&sandbox.User{UID: owner.UID, GID: owner.GID, IDs: 1 << 16})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = namespace.Close() })
	var paths []string
	for i := range 200 {
		paths = append(paths, fmt.Sprintf("dir-%d/file-%d", i%20, i))
	}
	for name, namespaces := range map[string]map[Owner]*os.File{"as they are": nil, "as his": {owner: namespace}} {
		b.Run(name, func(b *testing.B) {
			f := openFS(b, Options{Method: HardLink, Namespaces: namespaces})
			src := vfstest.NewSource(b)
			root := src.Tree(b, paths...)
			before := vfstest.CPUTime()
			for i := 0; b.Loop(); i++ {
				r, err := f.NewRoot(b.Context(), RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src, Owner: &owner})
				if err != nil {
					b.Fatal(err)
				}
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((vfstest.CPUTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
		})
	}
}

// BenchmarkSmallRoot measures the cost of a root that is mounted ahead, and of a copied one, whose
// action opens all of its files or one, and writes one. All that was removed is gone at the end.
func BenchmarkSmallRoot(b *testing.B) {
	for _, files := range []int{2, 8, 24, 48} {
		for name, o := range map[string]Options{
			"mounted": {Ready: 2}, "copied": {CopyBytes: copyBytes, DropFolders: true}, "copied to kept folders": {CopyBytes: copyBytes},
		} {
			for _, opened := range []int{1, files} {
				b.Run(fmt.Sprintf("%d files, %d opened, %s", files, opened, name), func(b *testing.B) {
					src := vfstest.NewSource(b)
					var paths []string
					for i := range files {
						paths = append(paths, fmt.Sprintf("a/b/dir-%d/file-%d", i/8, i))
					}
					root := src.Tree(b, paths...)
					src.Know(b, root)
					folders := []string{"out", "out/bin", "out/bin/a", "out/bin/a/b"}
					before := vfstest.CPUTime()
					f := openFS(b, o)
					for i := 0; b.Loop(); i++ {
						r, err := f.NewRoot(b.Context(), RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src, Folders: folders})
						if err != nil {
							b.Fatal(err)
						}
						for _, p := range paths[:opened] {
							if _, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil {
								b.Fatal(err)
							}
						}
						out := filepath.Join(r.Path(), "out/bin/a/b")
						if err := errors.Join(os.MkdirAll(out, 0o755), os.WriteFile(filepath.Join(out, "file"), nil, 0o644)); err != nil {
							b.Fatal(err)
						}
						r.Stats()
						r.Vacated()
						if err := r.Close(); err != nil {
							b.Fatal(err)
						}
					}
					if err := f.Close(); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(float64((vfstest.CPUTime()-before).Microseconds())/float64(b.N), "cpu-µs/op")
				})
			}
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
