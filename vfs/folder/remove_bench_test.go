package folder

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkRemoveTree removes what the writable layer of a compilation has after its outputs have
// moved away. It reports the CPU time.
func BenchmarkRemoveTree(b *testing.B) {
	dir := b.TempDir()
	var spent int64
	for i := range b.N {
		top := filepath.Join(dir, strconv.Itoa(i))
		for _, p := range []string{"upper/bazel-out/k8-fastbuild/bin/package/_objs/library", "work/work", "work/incompat/volatile"} {
			if err := os.MkdirAll(filepath.Join(top, p), 0o755); err != nil {
				b.Fatal(err)
			}
		}
		began := cpuTime(b)
		if err := RemoveTree(top); err != nil {
			b.Fatal(err)
		}
		spent += cpuTime(b) - began
	}
	b.ReportMetric(float64(spent)/1000/float64(b.N), "cpu-µs/op")
}

func cpuTime(b *testing.B) (ns int64) {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}
