package prefetch

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/client"
)

// The workloads.
const (
	workGo      = "go"
	workCXX     = "cxx"
	workGCC     = "gcc"
	workPython  = "python"
	workWebpack = "webpack"
	workJavac   = "javac"
	workSmall   = "small"
)

// A maker uploads the inputs of a workload to the storage.
type maker struct {
	work   string
	inputs string // description of the inputs
	make   func(context.Context, *prefetchBench) (*workload, error)
}

// makers returns the makers of all workloads, in the order in which they are printed.
func makers() []maker {
	return []maker{
		{workGo, "the Go SDK", goWork},
		{workCXX, "the headers of g++", cxxWork},
		{workGCC, "the headers of g++ for one source", gccWork},
		{workPython, "the library of Python", pythonWork},
		{workWebpack, "webpack", webpackWork},
		{workJavac, "a JDK", javacWork},
		{workSmall, "small files", smallWork},
	}
}

// jobs returns the workloads that have the same kinds of rows.
func jobs() []string { return []string{workGCC, workPython, workWebpack, workJavac, workGo} }

// A lack is a missing requirement of a workload, and how to install it.
type lack string

// Error implements error.
func (l lack) Error() string { return string(l) }

// needs returns a lack unless the program exists in a place that commands see.
func needs(program, packages string) error {
	if info, err := os.Stat(program); err != nil || info.Mode()&0o111 == 0 {
		return lack(fmt.Sprintf("no %s (apt-get install %s)", program, packages))
	}
	return nil
}

// A workload is a number of actions that are submitted all at once.
type workload struct {
	name     string
	slots    int
	actions  []*testbed.Action
	training []*testbed.Action // actions that a worker has run before the measured ones
	strange  []*testbed.Action // actions of the same kind that read other files
	inputs   *client.Inputs    // inputs of all actions, if they are the same
	note     string
}

// on returns the actions as actions of one build, for workers of a platform.
func (w *workload) on(platform client.Properties) (actions []*testbed.Action) {
	for _, a := range w.actions {
		own := *a
		own.Platform, own.Who = platform, proto.CloneOf(a.Who)
		own.Who.CorrelatedInvocationsId = "bench"
		actions = append(actions, &own)
	}
	return actions
}

// A job is a workload of one action.
type job struct {
	name     string
	mnemonic string
	mounts   []client.Mount
	command  *repb.Command
	strange  *repb.Command // nil: none
}

// store uploads the inputs of a job to the storage.
func (b *prefetchBench) store(ctx context.Context, j job) (*workload, error) {
	in, err := client.Scan(ctx, testbed.Function, j.mounts, nil)
	if err != nil {
		return nil, err
	}
	if err := b.farm.Storage.Upload(ctx, in.Blobs, nil); err != nil {
		return nil, err
	}
	who := &repb.RequestMetadata{ActionMnemonic: j.mnemonic, TargetId: "//bench:" + j.name, ConfigurationId: "bench"}
	w := &workload{
		name: j.name, slots: 1, inputs: in, note: fmt.Sprintf("%d files, %d MB", in.Files, in.Bytes/1e6),
		actions: []*testbed.Action{{Root: in.Root, Who: who, Command: j.command}},
	}
	if j.strange != nil {
		w.strange = []*testbed.Action{{Root: in.Root, Who: who, Command: j.strange}}
	}
	return w, nil
}

// sources writes files to a new folder of the benchmark and returns the folder. Names may contain
// folders.
func (b *prefetchBench) sources(work string, files map[string]string) (string, error) {
	dir := filepath.Join(b.farm.Dir, "sources-"+work)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return dir, nil
}

// stage copies a folder of the machine to a folder of the benchmark. It replaces symlinks by their
// targets, and omits broken symlinks and unwanted files. wanted gets paths relative to the folder.
func (b *prefetchBench) stage(work, from string, wanted func(path string) bool) (string, error) {
	to := filepath.Join(b.farm.Dir, "staged-"+work)
	from, err := filepath.EvalSymlinks(from) // WalkDir does not follow symlinks
	if err != nil {
		return "", err
	}
	return to, filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if below != "." && !wanted(below) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil // a broken symlink
		}
		target := filepath.Join(to, below)
		switch {
		case info.IsDir() && e.IsDir():
			return os.MkdirAll(target, 0o755)
		case info.IsDir():
			return os.CopyFS(target, os.DirFS(path))
		case info.Mode().IsRegular():
			return copyFile(target, path, info.Mode().Perm())
		}
		return nil
	})
}

func copyFile(to, from string, perm fs.FileMode) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, perm)
}

// goWork runs go build for a module, with the machine's SDK as input.
func goWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	goroot, err := testbed.Output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	return b.store(ctx, job{
		name: "go build", mnemonic: "GoBuild",
		mounts: []client.Mount{{Prefix: "go", Dir: strings.TrimSpace(goroot)}, {Prefix: "src", Dir: b.o.module}},
		command: testbed.NewCommand(
			[]string{"/bin/sh", "-c", `export GOROOT="$PWD/go" HOME=/tmp && cd src && exec ../go/bin/go build -o ../out/demo .`},
			"out/demo",
			"CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath -buildvcs=false", "GOPROXY=off", "GOTELEMETRY=off",
			"GOTOOLCHAIN=local", "PATH=/usr/bin:/bin"),
		strange: testbed.NewCommand(
			[]string{"/bin/sh", "-c", `cd src && ../go/bin/go version >../out/demo && find ../go/test -type f -size -64k | head -n 2000 | xargs cat >>../out/demo`},
			"out/demo", "GOTELEMETRY=off", "GOTOOLCHAIN=local", "HOME=/tmp", "PATH=/usr/bin:/bin"),
	})
}

// smallWork prints 60 small files of a folder; its strange action prints files of another folder.
func smallWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	files := map[string]string{}
	for i := range 60 {
		for _, folder := range []string{"read", "other"} {
			name := fmt.Sprintf("%s/%02d", folder, i)
			files[name] = strings.Repeat(name+"\n", 300)
		}
	}
	dir, err := b.sources(workSmall, files)
	if err != nil {
		return nil, err
	}
	list := func(folder string) *repb.Command {
		return testbed.NewCommand([]string{"/bin/sh", "-c", "cat " + folder + "/* >out"}, "out", "PATH=/usr/bin:/bin")
	}
	return b.store(ctx, job{
		name: "60 small files", mnemonic: "Cat", mounts: []client.Mount{{Dir: dir}}, command: list("read"), strange: list("other"),
	})
}
