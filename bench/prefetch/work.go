package prefetch

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
)

const (
	cxxActions  = 60
	cxxTraining = 30 // sources that a coarse profile is learned from
)

// A workload is some actions that are handed in all at once.
type workload struct {
	name     string
	slots    int
	actions  []*testbed.Action
	training []*testbed.Action // what a worker has seen before it meets the actions as new ones
	strange  []*testbed.Action // of the same kind as the actions, and they read nothing of what those do
	note     string
}

// on returns the actions as those of one build, for workers of a platform.
func (w *workload) on(platform client.Properties) (actions []*testbed.Action) {
	for _, a := range w.actions {
		own := *a
		own.Platform, own.Who = platform, proto.CloneOf(a.Who)
		own.Who.CorrelatedInvocationsId = "bench"
		actions = append(actions, &own)
	}
	return actions
}

// goWork is go build of the module in a folder with the machine's SDK as input.
func goWork(ctx context.Context, f *testbed.Farm, module string) (*workload, error) {
	goroot, err := testbed.Output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	in, err := client.Scan(ctx, testbed.Function, []client.Mount{
		{Prefix: "go", Dir: strings.TrimSpace(goroot)}, {Prefix: "src", Dir: module},
	}, nil)
	if err != nil {
		return nil, err
	}
	if err := f.Storage.Upload(ctx, in.Blobs, nil); err != nil {
		return nil, err
	}
	a := &testbed.Action{
		Root: in.Root,
		Command: testbed.NewCommand(
			[]string{"/bin/sh", "-c", `export GOROOT="$PWD/go" HOME=/tmp && cd src && exec ../go/bin/go build -o ../out/demo .`},
			"out/demo",
			"CGO_ENABLED=0", "GOFLAGS=-mod=mod -trimpath -buildvcs=false", "GOPROXY=off", "GOTELEMETRY=off",
			"GOTOOLCHAIN=local", "PATH=/usr/bin:/bin"),
		Who: &repb.RequestMetadata{ActionMnemonic: "GoBuild", TargetId: "//demo:demo", ConfigurationId: "bench"},
	}
	strange := &testbed.Action{Root: in.Root, Who: a.Who, Command: testbed.NewCommand(
		[]string{"/bin/sh", "-c", `cd src && ../go/bin/go version >../out/demo && find ../go/test -type f -size -64k | head -n 2000 | xargs cat >>../out/demo`},
		"out/demo", "GOTELEMETRY=off", "GOTOOLCHAIN=local", "HOME=/tmp", "PATH=/usr/bin:/bin")}
	return &workload{
		name: "go build", slots: 1, actions: []*testbed.Action{a}, strange: []*testbed.Action{strange},
		note: fmt.Sprintf("%d files, %d MB", in.Files, in.Bytes/1e6),
	}, nil
}

// cxxWork are compile actions over the machine's headers. It is nil, with a reason,
// where there is no g++ or no Boost.
func cxxWork(ctx context.Context, f *testbed.Farm) (w *workload, lacks string, err error) {
	if _, err := exec.LookPath("g++"); err != nil {
		return nil, "no g++", nil
	}
	said, err := exec.CommandContext(ctx, "g++", "-E", "-v", "-x", "c++", "/dev/null").CombinedOutput()
	if err != nil {
		return nil, "", fmt.Errorf("ask g++ for its search path: %w", err)
	}
	folders := testbed.SearchPath(string(said))
	if matches, _ := filepath.Glob("/usr/include/boost/version.hpp"); len(matches) == 0 {
		return nil, "no Boost (libboost-dev)", nil
	}
	var mounts []client.Mount
	args := []string{"g++", "-std=c++17", "-nostdinc", "-nostdinc++"}
	for _, d := range folders {
		args = append(args, "-isystem", "cxx"+d)
		if !slices.ContainsFunc(folders, func(o string) bool { return strings.HasPrefix(d, o+"/") }) {
			mounts = append(mounts, client.Mount{Prefix: strings.TrimPrefix(d, "/"), Dir: d})
		}
	}
	in, err := client.Scan(ctx, testbed.Function, mounts, nil)
	if err != nil {
		return nil, "", err
	}
	if err := f.Storage.Upload(ctx, in.Blobs, nil); err != nil {
		return nil, "", err
	}
	w = &workload{
		name: fmt.Sprintf("%d × g++", cxxActions), slots: 2,
		note: fmt.Sprintf("%d files, %d MB each, 2 at a time", in.Files, in.Bytes/1e6),
	}
	for i := range cxxActions + cxxTraining {
		a, err := cxxAction(ctx, f, args, in.Root, i)
		if err != nil {
			return nil, "", err
		}
		if i < cxxActions {
			w.actions = append(w.actions, a)
		} else {
			w.training = append(w.training, a)
		}
	}
	return w, "", nil
}

// cxxAction compiles the i-th source, with headers as all others have them.
func cxxAction(ctx context.Context, f *testbed.Farm, args []string, headers digest.Digest, i int) (*testbed.Action, error) {
	name := fmt.Sprintf("source_%d.cc", i)
	source := []byte(cxxUnit(i))
	file := digest.Of(testbed.Function, source)
	root, raw, err := digest.OfMessage(testbed.Function, &repb.Directory{
		Files:       []*repb.FileNode{{Name: name, Digest: file.Proto()}},
		Directories: []*repb.DirectoryNode{{Name: "cxx", Digest: headers.Proto()}},
	})
	if err != nil {
		return nil, err
	}
	err = f.Storage.Upload(ctx, []casclient.Blob{casclient.BytesBlob(file, source), casclient.BytesBlob(root, raw)}, nil)
	return &testbed.Action{
		Root:    root,
		Command: testbed.NewCommand(append(slices.Clone(args), "-c", "-o", "made.o", name), "made.o", "PATH=/usr/bin:/bin"),
		Who: &repb.RequestMetadata{
			ActionMnemonic: "CppCompile", TargetId: fmt.Sprintf("//bench:source_%d", i), ConfigurationId: "bench",
		},
	}, err
}

// boostHeaders are what sources include, each a few of them.
var boostHeaders = []string{
	"algorithm/string/trim.hpp", "any.hpp", "array.hpp", "bind/bind.hpp", "circular_buffer.hpp",
	"container/flat_map.hpp", "container/small_vector.hpp", "crc.hpp", "date_time/gregorian/gregorian_types.hpp",
	"dynamic_bitset.hpp", "endian/conversion.hpp", "foreach.hpp", "format.hpp", "function.hpp", "heap/priority_queue.hpp",
	"integer.hpp", "intrusive/list.hpp", "iterator/transform_iterator.hpp", "lexical_cast.hpp",
	"lockfree/queue.hpp", "mp11.hpp", "multi_array.hpp", "multi_index_container.hpp", "numeric/conversion/cast.hpp",
	"optional.hpp", "pool/object_pool.hpp", "property_tree/ptree.hpp", "ptr_container/ptr_vector.hpp",
	"rational.hpp", "scope_exit.hpp", "shared_ptr.hpp", "tokenizer.hpp", "tuple/tuple.hpp",
	"type_index.hpp", "unordered_map.hpp", "uuid/uuid.hpp", "variant.hpp",
}

// cxxUnit is the i-th source: two headers of Boost and some of the library, in a mix
// that no two have in common.
func cxxUnit(i int) string {
	n := len(boostHeaders)
	picked := []string{boostHeaders[i%n], boostHeaders[(i+5+4*(i/n))%n]}
	var b strings.Builder
	for _, h := range picked {
		fmt.Fprintf(&b, "#include <boost/%s>\n", h)
	}
	fmt.Fprintf(&b, "#include <map>\n#include <string>\n#include <vector>\n"+
		"std::map<std::string, std::vector<int>> made_%d() { return {{\"a\", {%d}}}; }\n", i, i)
	return b.String()
}
