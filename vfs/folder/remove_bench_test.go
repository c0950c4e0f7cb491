package folder

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// BenchmarkRemoveTree removes what the writable layer of a compilation has after its outputs have
// moved away. It reports the CPU time.
func BenchmarkRemoveTree(b *testing.B) {
	dir := b.TempDir()
	var spent time.Duration
	for i := range b.N {
		top := filepath.Join(dir, strconv.Itoa(i))
		for _, p := range []string{"upper/bazel-out/k8-fastbuild/bin/package/_objs/library", "work/work", "work/incompat/volatile"} {
			if err := os.MkdirAll(filepath.Join(top, p), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		began := vfstest.CPUTime()
		if err := RemoveTree(top); err != nil {
			b.Fatal(err)
		}
		spent += vfstest.CPUTime() - began
	}
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "cpu-µs/op")
}
