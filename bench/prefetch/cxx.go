package prefetch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
)

const (
	cxxActions  = 60
	cxxTraining = 30 // sources from which a coarse profile is learned
)

// cxxHeaders returns options that make g++ take the machine's headers from the folder cxx, and the
// mounts that put them there.
func cxxHeaders(ctx context.Context) (args []string, mounts []client.Mount, err error) {
	if err := needs("/usr/bin/g++", "g++"); err != nil {
		return nil, nil, err
	}
	if _, err := os.Stat("/usr/include/boost/version.hpp"); err != nil {
		return nil, nil, lack("no Boost (apt-get install libboost-dev)")
	}
	said, err := exec.CommandContext(ctx, "/usr/bin/g++", "-E", "-v", "-x", "c++", "/dev/null").CombinedOutput()
	if err != nil {
		return nil, nil, fmt.Errorf("ask g++ for its search path: %w", err)
	}
	folders := testbed.SearchPath(string(said))
	args = []string{"g++", "-std=c++17", "-nostdinc", "-nostdinc++"}
	for _, d := range folders {
		args = append(args, "-isystem", "cxx"+d)
		if !slices.ContainsFunc(folders, func(o string) bool { return strings.HasPrefix(d, o+"/") }) {
			mounts = append(mounts, client.Mount{Prefix: strings.TrimPrefix(d, "/"), Dir: d})
		}
	}
	return args, mounts, nil
}

// cxxWork returns compile actions with the machine's headers as inputs.
func cxxWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	args, mounts, err := cxxHeaders(ctx)
	if err != nil {
		return nil, err
	}
	in, err := client.Scan(ctx, testbed.Function, mounts, nil)
	if err != nil {
		return nil, err
	}
	if err := b.farm.Storage.Upload(ctx, in.Blobs, nil); err != nil {
		return nil, err
	}
	w := &workload{
		name: fmt.Sprintf("%d × g++", cxxActions), slots: 2,
		note: fmt.Sprintf("%d files, %d MB each, 2 at a time", in.Files, in.Bytes/1e6),
	}
	for i := range cxxActions + cxxTraining {
		a, err := cxxAction(ctx, b.farm, args, in.Root, i)
		if err != nil {
			return nil, err
		}
		if i < cxxActions {
			w.actions = append(w.actions, a)
		} else {
			w.training = append(w.training, a)
		}
	}
	return w, nil
}

// gccWork compiles one source, which includes more of Boost than the sources of cxxWork.
func gccWork(ctx context.Context, b *prefetchBench) (*workload, error) {
	args, mounts, err := cxxHeaders(ctx)
	if err != nil {
		return nil, err
	}
	for i, m := range mounts {
		mounts[i].Prefix = path.Join("cxx", m.Prefix)
	}
	dir, err := b.sources(workGCC, map[string]string{"main.cc": `#include <boost/asio.hpp>
#include <boost/format.hpp>
#include <boost/multi_index/ordered_index.hpp>
#include <boost/multi_index_container.hpp>
#include <boost/property_tree/json_parser.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <iostream>
int main() { std::cout << boost::format("%1%") % 1; }
`})
	if err != nil {
		return nil, err
	}
	return b.store(ctx, job{
		name: "g++", mnemonic: "CppCompile", mounts: append(mounts, client.Mount{Dir: dir}),
		command: testbed.NewCommand(append(args, "-c", "-o", "made.o", "main.cc"), "made.o", "PATH=/usr/bin:/bin"),
	})
}

// cxxAction returns the compile action of the i-th source. All sources share the headers.
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

// boostHeaders are headers to include; each source includes a few of them.
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

// cxxUnit returns the i-th source: two headers of Boost and some of the standard library. No two
// sources have the same combination.
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
