package link

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// BenchmarkLinkedRoot is the cost of a root of hard links, whose files were linked before, kept as
// a whole or not: "show" until the command can start, "hide" until its answer can go out, "look" to
// see that no input was changed.
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
			f := openLinkFarm(b, linkFarmOptions{Bare: way == "bare"})
			if way == "overlay" {
				f.kept = nil
			}
			src := vfstest.NewSource(b)
			root := src.Tree(b, paths...)
			var cold, show, look, hide time.Duration
			for i := 0; b.Loop(); i++ {
				start := time.Now()
				r, err := f.newRoot(b.Context(), rootSpec{Digest: root, Source: src})
				if err != nil {
					b.Fatal(err)
				}
				shown := time.Now()
				if i == 0 {
					cold = shown.Sub(start)
				} else {
					show += shown.Sub(start)
				}
				if r.over == nil {
					err = r.bare.Intact()
				}
				looked := time.Now()
				if err := errors.Join(err, r.close()); err != nil {
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
