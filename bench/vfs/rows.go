package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/pause"
)

const (
	warmUps = 3
	// settle is the time between the first uses of a tree and the measured root. Background work
	// after the end of an action finishes in this time.
	settle = 2 * time.Second
	// The number of roots for root_ms and root_rss_kib.
	untouchedRoots = 50
	openRoots      = 20
)

// The rows that are not comparisons.
const (
	rowRootMS  = "root_ms"
	rowRootRSS = "root_rss_kib"
)

// comparisons returns the rows that compare, in the order in which they are measured.
func comparisons() []comparison {
	const unseen = "no earlier action saw the tree"
	return []comparison{
		{name: "go_build", wanted: "≥ 0.97", work: side.goBuild, cpu: "daemon_cpu_s"},
		{name: "gxx", wanted: "≥ 0.97", work: side.gxx},
		{name: "seq_read", wanted: "≥ 0.95", work: side.seqRead, quick: true},
		{name: "seq_read_again", wanted: "≥ 0.95", work: side.seqRead, root: again, quick: true},
		{name: "random_read", wanted: "≥ 0.85", work: side.randomRead, quick: true},
		{name: "create_unlink", wanted: "≥ 0.5", work: side.createUnlink, quick: true},
		{name: "create_unlink_tmpfs", work: side.createUnlink, inMemory: true, quick: true, note: "writable layer in memory"},
		{name: "find", wanted: "≥ 0.4", work: side.find, quick: true},
		{name: "find_warm", work: side.find, root: warm, quick: true, note: "second time in one root"},
		{name: "tar", wanted: "≥ 0.5", work: side.tar, quick: true},
		{name: "tar_warm", work: side.tar, root: warm, quick: true, note: "second time in one root"},
		{name: "open_small", wanted: "≥ 0.3", work: side.openSmall, quick: true},
		{name: "open_small_warm", work: side.openSmall, root: warm, quick: true, note: "second time in one root"},
		{name: "go_build_first", work: side.goBuild, root: first, note: unseen, cpu: "daemon_cpu_s_first"},
		{name: "find_first", wanted: "≥ 0.5", work: side.find, root: first, note: unseen},
		{name: "tar_first", wanted: "≥ 0.4", work: side.tar, root: first, note: unseen},
		{name: "open_small_first", wanted: "≥ 0.2", work: side.openSmall, root: first, note: unseen},
	}
}

func rowNames() (names []string) {
	for _, c := range comparisons() {
		names = append(names, c.rows()...)
	}
	return append(names, rowRootMS, rowRootRSS)
}

func needsOf(o *report.Options) needs {
	return needs{big: o.Wants("seq_read", "seq_read_again", "random_read"), cxx: o.Wants("gxx")}
}

// lacks lists the requirements of a comparison that this machine lacks.
func (b *vfsBench) lacks(c comparison) string {
	if c.name == "gxx" && len(b.in.cxx) == 0 {
		return "no g++"
	}
	return ""
}

func (b *vfsBench) noteOf(c comparison) string {
	switch {
	case c.name == "gxx" && !b.in.boost:
		return "without Boost, which is not installed"
	case c.name == "find":
		return fmt.Sprintf("%d files", b.in.sdkFiles)
	case c.name == "open_small" && b.in.smallN < smallFiles:
		return fmt.Sprintf("%d files", b.in.smallN)
	}
	return c.note
}

// removeMade removes the results of work in a plain folder. In a root they vanish with the root.
func removeMade(dir string) error {
	return errors.Join(os.RemoveAll(filepath.Join(dir, "out")), os.RemoveAll(filepath.Join(dir, "made")))
}

// warmUp runs three actions that read a little of the trees, as earlier actions would have.
func (b *vfsBench) warmUp(ctx context.Context) error {
	if err := b.site.restart(); err != nil {
		return err
	}
	for range warmUps {
		c := comparison{work: func(s side, ctx context.Context) (time.Duration, error) {
			return s.site.child(ctx, "touch", filepath.Join(s.dir, "go", "src", "net"))
		}}
		if _, err := b.once(ctx, c, b.site.roots); err != nil {
			return err
		}
	}
	if b.site.partly() {
		return nil
	}
	return pause.For(ctx, settle)
}

// goBuild builds a server with the SDK and the build cache in dir.
func (s side) goBuild(ctx context.Context) (time.Duration, error) {
	_, took, err := s.site.run(ctx, job{
		dir: filepath.Join(s.dir, "app"),
		env: []string{
			"GOROOT=" + filepath.Join(s.dir, "go"), "GOCACHE=" + filepath.Join(s.dir, "out", "cache"),
			"GOPATH=" + filepath.Join(s.dir, "out", "gopath"), "HOME=" + filepath.Join(s.dir, "out"), "TMPDIR=" + s.site.dir,
			"GOFLAGS=-mod=mod", "GOPROXY=off", "GOTOOLCHAIN=local", "GOENV=off", "GOWORK=off", "CGO_ENABLED=0",
		},
		args: []string{filepath.Join(s.dir, "go", "bin", "go"), "build", "-o", filepath.Join(s.dir, "out", "server"), "."},
	})
	return took, err
}

// gxx compiles with the machine's compiler, and with headers that are all in dir.
func (s side) gxx(ctx context.Context) (time.Duration, error) {
	args := []string{"g++", "-std=c++17", "-nostdinc", "-nostdinc++"}
	for _, d := range s.in.cxx {
		args = append(args, "-isystem", filepath.Join(s.dir, d))
	}
	_, took, err := s.site.run(ctx, job{
		dir: s.dir, env: []string{"TMPDIR=" + s.site.dir},
		args: append(args, "-c", "-o", "made", filepath.Join("cxx", "main.cc")),
	})
	return took, err
}

func (s side) find(ctx context.Context) (time.Duration, error) {
	_, took, err := s.site.run(ctx, job{dir: s.dir, args: []string{"find", "go"}})
	return took, err
}

// tar reads everything. It pipes to cat, because GNU tar reads nothing if it writes to /dev/null.
func (s side) tar(ctx context.Context) (time.Duration, error) {
	_, took, err := s.site.run(ctx, job{dir: s.dir, args: []string{"sh", "-c", "tar cf - go | cat >/dev/null"}})
	return took, err
}

func (s side) seqRead(ctx context.Context) (time.Duration, error) {
	return s.site.child(ctx, "seq-read", filepath.Join(s.dir, "big", "data"))
}

func (s side) randomRead(ctx context.Context) (time.Duration, error) {
	return s.site.child(ctx, "random-read", filepath.Join(s.dir, "big", "data"))
}

func (s side) createUnlink(ctx context.Context) (time.Duration, error) {
	return s.site.child(ctx, "create-unlink", s.dir)
}

func (s side) openSmall(ctx context.Context) (time.Duration, error) {
	return s.site.child(ctx, "open-small", s.dir, s.in.small)
}

// rootRows measures the cost of a root itself.
func (b *vfsBench) rootRows(ctx context.Context) error {
	var errs []error
	if b.o.Wants(rowRootMS) {
		errs = append(errs, b.rootTime(ctx))
	}
	if b.o.Wants(rowRootRSS) {
		errs = append(errs, b.rootMemory(ctx))
	}
	return errors.Join(errs...)
}

// rootTime makes and removes roots without using them, alternately large and tiny ones.
func (b *vfsBench) rootTime(ctx context.Context) error {
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	report.Progress("%s", rowRootMS)
	var large, tiny []float64
	for range untouchedRoots {
		for _, of := range []*[]float64{&large, &tiny} {
			subtrees := b.site.subtrees
			if of == &tiny {
				subtrees = nil
			}
			spec, err := b.site.spec(ctx, subtrees)
			if err != nil {
				return err
			}
			began := time.Now()
			r, err := b.site.roots.NewRoot(ctx, spec)
			if err != nil {
				return err
			}
			if err := r.Close(); err != nil {
				return err
			}
			*of = append(*of, report.Milliseconds(time.Since(began)))
		}
	}
	r := report.NewRow(rowRootMS, report.Median(large), "ms")
	r.Wanted = "≤ 2"
	r.Baseline = fmt.Sprintf("a root of one file %s ms", report.FormatValue(report.Median(tiny)))
	r.Note = fmt.Sprintf("appear and vanish, its root Directory in the store; %s, %d runs", report.Spread(large), len(large))
	b.rows = append(b.rows, r)
	return nil
}

// rootMemory measures the memory of used, open roots, without kernel memory.
func (b *vfsBench) rootMemory(ctx context.Context) (err error) {
	if err := b.warmUp(ctx); err != nil {
		return err
	}
	resident := func() (float64, error) {
		runtime.GC()
		debug.FreeOSMemory()
		return report.ResidentKiB()
	}
	before, err := resident()
	if err != nil {
		return err
	}
	for i := range openRoots {
		report.Progress("%s, root %d of %d", rowRootRSS, i+1, openRoots)
		r, err := b.site.root(ctx, b.site.roots, b.site.subtrees)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
		s := side{b, r.Path()}
		if _, err := s.find(ctx); err != nil {
			return err
		}
		if _, err := s.openSmall(ctx); err != nil {
			return err
		}
	}
	after, err := resident()
	if err != nil {
		return err
	}
	r := report.NewRow(rowRootRSS, (after-before)/openRoots, "KiB")
	r.Note = fmt.Sprintf("%d roots open after find and open_small in each; the process alone, %s KiB before",
		openRoots, report.FormatValue(before))
	b.rows = append(b.rows, r)
	return nil
}
