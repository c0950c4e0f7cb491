package vfs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
)

const (
	bigBytes = 1 << 30
	// smallBytes is the maximum size of a small file; smallFiles is the number of small files to
	// open.
	smallBytes = 64 << 10
	smallFiles = 10_000
)

// inputs are the plain trees of the input roots, each in a folder of its own. The folders are also
// the baseline.
type inputs struct {
	dir      string // has the folders app, big, cxx and go, as far as they are needed
	small    string // file with a list of small files in go, relative to dir
	smallN   int
	sdkFiles int
	cxx      []string // search path of g++ below cxx; empty without g++
	boost    bool     // the headers of Boost are in cxx
}

// needs says which inputs are needed.
type needs struct{ big, cxx bool }

// makeInputs copies the measured trees to dir. It starts programs, so there must be no mount yet.
func makeInputs(ctx context.Context, dir string, n needs) (*inputs, error) {
	in := &inputs{dir: filepath.Join(dir, "plain"), small: filepath.Join(dir, "small")}
	if err := os.Mkdir(in.dir, 0o755); err != nil {
		return nil, err
	}
	report.Progress("copying the Go SDK")
	if err := in.copySDK(ctx); err != nil {
		return nil, fmt.Errorf("copy the Go SDK: %w", err)
	}
	if n.cxx {
		report.Progress("copying the headers of g++")
		if err := in.copyHeaders(ctx); err != nil {
			return nil, fmt.Errorf("copy headers: %w", err)
		}
	}
	if n.big {
		report.Progress("writing %d MiB", bigBytes>>20)
		if err := in.writeBig(ctx, bigBytes); err != nil {
			return nil, fmt.Errorf("write large file: %w", err)
		}
	}
	return in, nil
}

func (in *inputs) copySDK(ctx context.Context) error {
	goroot, err := testbed.Output(ctx, "go", "env", "GOROOT")
	if err != nil {
		return err
	}
	// Some systems have parts of the SDK elsewhere, and symlinks to them.
	to := filepath.Join(in.dir, "go")
	if _, err := testbed.Output(ctx, "cp", "-RL", "--preserve=mode,timestamps", strings.TrimSpace(goroot), to); err != nil {
		return err
	}
	if err := in.listSmall(to); err != nil {
		return err
	}
	app := filepath.Join(in.dir, "app")
	return errors.Join(
		os.Mkdir(app, 0o755),
		os.WriteFile(filepath.Join(app, "go.mod"), []byte("module example.com/app\n\ngo 1.21\n"), 0o644),
		os.WriteFile(filepath.Join(app, "main.go"), []byte(goSource), 0o644))
}

// listSmall writes a list of small files, with the same number from every part of the tree.
func (in *inputs) listSmall(dir string) error {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		in.sdkFiles++
		info, err := d.Info()
		if err == nil && info.Size() <= smallBytes && !strings.Contains(path, "\n") {
			rel, _ := strings.CutPrefix(path, in.dir+"/")
			paths = append(paths, rel)
		}
		return err
	})
	if err != nil {
		return err
	}
	if surplus := len(paths) - smallFiles; surplus > 0 {
		random := rand.New(rand.NewPCG(1, 2))
		random.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		paths = paths[:smallFiles]
		slices.Sort(paths)
	}
	in.smallN = len(paths)
	return os.WriteFile(in.small, []byte(strings.Join(paths, "\n")+"\n"), 0o644)
}

// copyHeaders copies the folders that g++ searches, to the same paths below cxx.
func (in *inputs) copyHeaders(ctx context.Context) error {
	if _, err := exec.LookPath("g++"); err != nil {
		return nil
	}
	said, err := exec.CommandContext(ctx, "g++", "-E", "-v", "-x", "c++", os.DevNull).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ask g++ for its search path: %w", err)
	}
	cxx := filepath.Join(in.dir, "cxx")
	folders := testbed.SearchPath(string(said))
	for _, from := range folders {
		if _, err := os.Stat(filepath.Join(from, "boost", "version.hpp")); err == nil {
			in.boost = true
		}
		in.cxx = append(in.cxx, filepath.Join("cxx", from))
		if slices.ContainsFunc(folders, func(o string) bool { return strings.HasPrefix(from, o+"/") }) {
			continue // copied with its parent
		}
		to := filepath.Join(cxx, from)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if _, err := testbed.Output(ctx, "cp", "-a", from, to); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(cxx, 0o755); err != nil {
		return err
	}
	source := cxxSource
	if in.boost {
		source = boostSource
	}
	return os.WriteFile(filepath.Join(cxx, "main.cc"), []byte(source), 0o644)
}

func (in *inputs) writeBig(ctx context.Context, size int) (err error) {
	big := filepath.Join(in.dir, "big")
	if err := os.Mkdir(big, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(big, "data"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	random := rand.NewChaCha8([32]byte{})
	block := make([]byte, sequentialBuf)
	for written := 0; written < size; written += len(block) {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, _ = random.Read(block) // never fails
		if _, err := w.Write(block); err != nil {
			return err
		}
	}
	return w.Flush()
}

const goSource = `package main

import (
	"fmt"
	"net/http"
)

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello", r.URL) })
	fmt.Println(http.ListenAndServe("127.0.0.1:8000", nil))
}
`

const cxxSource = `#include <bits/stdc++.h>

int main() {
  std::map<std::string, std::vector<int>> m;
  m["a"].push_back(1);
  std::cout << m.size() << std::endl;
}
`

const boostSource = `#include <boost/algorithm/string.hpp>
#include <boost/graph/adjacency_list.hpp>
#include <boost/lexical_cast.hpp>
#include <boost/multi_index/member.hpp>
#include <boost/multi_index/ordered_index.hpp>
#include <boost/multi_index_container.hpp>
#include <boost/property_tree/json_parser.hpp>
#include <boost/range/adaptors.hpp>
` + cxxSource
