package outputs

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// threadTime returns the CPU time of this thread.
func threadTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) // never fails
	return time.Duration(t.Nano())
}

// BenchmarkOutputs makes the folders for the outputs of a compilation, and collects the outputs
// that it has written there. It reports the CPU time of both on their thread: without that of FUSE,
// and of what a root does in the background.
func BenchmarkOutputs(b *testing.B) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	dir := b.TempDir()
	f, err := vfs.Open(vfs.Options{
		MountDir: filepath.Join(dir, "mounts"), UpperDir: filepath.Join(dir, "upper"), Method: vfs.FUSE,
	})
	check(b, err)
	defer func() { check(b, f.Close()) }()
	store, err := disk.Open(filepath.Join(dir, "store"), disk.Options{MaxBytes: 1 << 30})
	check(b, err)
	defer func() { check(b, store.Close()) }()
	src := vfstest.NewSource(b)
	in := src.Tree(b, "package/file.c", "bazel-out/k8-fastbuild/bin/package/header.h")
	const bin = "bazel-out/k8-fastbuild/bin/package/"
	spec, err := ParseSpec(&repb.Command{OutputPaths: []string{
		bin + "_objs/library/file.d", bin + "_objs/library/file.o", bin + "_objs/other/file.dwo", bin + "lib/library.a",
	}})
	check(b, err)
	var policy Policy
	check(b, policy.Validate(store.Stats().MaxBytes))
	var prepare, collect time.Duration
	for i := 0; b.Loop(); i++ {
		r, err := f.NewRoot(b.Context(), vfs.RootSpec{Name: fmt.Sprint(i), Digest: in, Source: src})
		check(b, err)
		root, err := os.OpenRoot(r.Path())
		check(b, err)
		began := threadTime()
		check(b, spec.Prepare(root))
		prepare += threadTime() - began
		for _, p := range spec.Paths {
			check(b, os.WriteFile(filepath.Join(r.Path(), p.Full), fmt.Append(nil, i, p.Full), 0o644))
		}
		o := New(Options{Spec: spec, Policy: policy, Function: digest.SHA256, Root: r, Inputs: noDirectories{}, Store: store, Vacated: true})
		began = threadTime()
		check(b, o.Collect(b.Context(), root))
		collect += threadTime() - began
		o.Release()
		check(b, root.Close())
		check(b, r.Close())
	}
	b.ReportMetric(float64(prepare.Microseconds())/float64(b.N), "prepare-cpu-µs/op")
	b.ReportMetric(float64(collect.Microseconds())/float64(b.N), "collect-cpu-µs/op")
}
