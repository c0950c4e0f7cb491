package server

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// The kinds of outputs.
const (
	outputFile   = "file"
	outputFolder = "directory"
	outputLink   = "symlink"
)

// An output is the entry of a result at a path. Two equal ones are the same for clients.
type output struct{ kind, is string }

// isFile returns the output of a file.
func isFile(fn digest.Function, f *repb.OutputFile) string {
	m := f.GetDigest()
	if m == nil {
		m = digest.Of(fn, f.GetContents()).Proto()
	}
	is := digest.Text(m)
	if f.GetIsExecutable() {
		is += " executable"
	}
	return is
}

// isFolder returns the output of a directory.
func isFolder(d *repb.OutputDirectory) string {
	return digest.Text(d.GetTreeDigest()) + " " + digest.Text(d.GetRootDirectoryDigest())
}

// outputPaths has the paths of a result. Each path must name one thing.
type outputPaths struct {
	given map[string]struct{} // of files and directories, as the command has them
	clean map[string]output
}

// addOnce is add for a path that must not be given twice.
func (p outputPaths) addOnce(at, kind, is string) error {
	if _, twice := p.given[at]; twice {
		return fmt.Errorf("output path %.200q occurs twice", at)
	}
	p.given[at] = struct{}{}
	return p.add(at, kind, is)
}

// add checks a path, and that no other output has it. A result may have the same output several
// times: a command may spell one path in several ways, and lists repeat each other for clients of
// API 2.0. The empty path is the working directory itself.
func (p outputPaths) add(at, kind, is string) error {
	if at == "" && kind == outputFolder {
		at = "."
	}
	if at == "" || at[0] == '/' || strings.IndexByte(at, 0) >= 0 {
		return fmt.Errorf("output path %.200q is not a relative path", at)
	}
	for s := range strings.SplitSeq(at, "/") {
		if s == ".." {
			return fmt.Errorf("output path %.200q leads upwards", at)
		}
	}
	clean, here := path.Clean(at), output{kind, is}
	if clean == "." && kind != outputFolder {
		return fmt.Errorf("output path %.200q is the working directory, not a %s", at, kind)
	}
	if other, ok := p.clean[clean]; ok && other != here {
		return fmt.Errorf("output path %.200q is that of a %s and of another %s", at, other.kind, kind)
	}
	p.clean[clean] = here
	return nil
}

// checkParents fails if anything is below a file.
func (p outputPaths) checkParents() error {
	all := slices.Sorted(maps.Keys(p.clean))
	for _, at := range all {
		if p.clean[at].kind != outputFile {
			continue
		}
		if i, _ := slices.BinarySearch(all, at+"/"); i < len(all) && strings.HasPrefix(all[i], at+"/") {
			return fmt.Errorf("output path %.200q is below %.200q, which is a file", all[i], at)
		}
	}
	return nil
}
