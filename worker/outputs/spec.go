package outputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/worker/fault"
)

// Kind is the requested kind of an output path. Clients of API 2.1 and later use output_paths and
// accept any kind; older ones name the kind.
type Kind int

const (
	// Any accepts every kind.
	Any Kind = iota
	// File and Directory fail if the path has another kind of file.
	File
	Directory
)

// A Path is an output path that the client requests.
type Path struct {
	Given string // as the client wrote it: relative to the working directory
	Full  string // relative to the input root, clean
	Kind  Kind
}

// A Spec is the checked specification of a command's outputs.
type Spec struct {
	WorkingDirectory string // relative to the input root, clean; "." is the root
	Paths            []Path
	Format           repb.Command_OutputDirectoryFormat
}

// ParseSpec checks the outputs of m as far as possible without a file system.
func ParseSpec(m *repb.Command) (s Spec, err error) {
	s.Format = m.GetOutputDirectoryFormat()
	if s.WorkingDirectory, err = cleanBelow(".", m.GetWorkingDirectory()); err != nil {
		return s, fmt.Errorf("working directory: %w", err)
	}
	// output_paths, when given, stands for the two older fields (REv2, Command).
	if len(m.GetOutputPaths()) > 0 {
		return s, s.add(m.GetOutputPaths(), Any)
	}
	//lint:ignore SA1019 clients of API 2.0 send nothing else
	files, directories := m.GetOutputFiles(), m.GetOutputDirectories()
	return s, errors.Join(s.add(files, File), s.add(directories, Directory))
}

func (s *Spec) add(paths []string, kind Kind) error {
	for _, p := range paths {
		full, err := cleanBelow(s.WorkingDirectory, p)
		if err != nil {
			return fmt.Errorf("output path: %w", err)
		}
		s.Paths = append(s.Paths, Path{Given: p, Full: full, Kind: kind})
	}
	return nil
}

// cleanBelow joins a client's path to base and rejects one that is absolute, contains NUL or leaves
// the input root.
func cleanBelow(base, p string) (string, error) {
	full := path.Join(base, p)
	switch {
	case strings.HasPrefix(p, "/"):
		return "", fmt.Errorf("%.200q is absolute", p)
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf("%.200q contains NUL", p)
	case full == ".." || strings.HasPrefix(full, "../"):
		return "", fmt.Errorf("%.200q leaves the input root", p)
	}
	return full, nil
}

// Folders returns the paths of the folders that Prepare makes if no symlinks lead there, each after
// the one that it is in. Those on the way to the working directory must be inputs.
func (s *Spec) Folders() (all []string) {
	seen := map[string]struct{}{".": {}}
	for dir := s.WorkingDirectory; dir != "."; dir = path.Dir(dir) {
		seen[dir] = struct{}{}
	}
	var add func(dir string)
	add = func(dir string) {
		if _, ok := seen[dir]; !ok {
			seen[dir] = struct{}{}
			add(path.Dir(dir))
			all = append(all, dir)
		}
	}
	for _, o := range s.Paths {
		add(o.folder())
	}
	return all
}

// folder returns the folder to make for o.
func (o *Path) folder() string {
	if o.Kind == Directory {
		return o.Full
	}
	return path.Dir(o.Full)
}

// IsPrepared reports whether Prepare would find all folders that it makes, and the working directory.
func (s *Spec) IsPrepared(has func(dir string) bool) bool {
	return has(s.WorkingDirectory) && !slices.ContainsFunc(s.Paths, func(o Path) bool { return !has(o.folder()) })
}

// Prepare makes the folders that the command expects for its outputs (REv2, Command.output_paths).
// For output_directories, which only Bazel before version 7 sends and relies on, it makes the
// folder itself.
func (s *Spec) Prepare(root *os.Root) error {
	info, err := root.Stat(s.WorkingDirectory)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if errors.Is(err, fs.ErrNotExist) && s.WorkingDirectory != "." {
		return fault.Errorf(codes.InvalidArgument, "working directory %q is not in the input root", s.WorkingDirectory)
	}
	if err != nil {
		return pathFault("working directory", s.WorkingDirectory, err)
	}
	top, err := openTop(root)
	if err != nil {
		return err
	}
	defer top.Close()
	made := "."
	for _, o := range s.Paths {
		dir := o.folder()
		if dir == made {
			continue
		}
		if makeStraight(int(top.Fd()), made, dir) != nil { // a symlink may lead there
			if err := root.MkdirAll(dir, 0o755); err != nil {
				return pathFault("directory of output", o.Given, err)
			}
		}
		made = dir
	}
	return nil
}

// pathFault makes an invalid path the client's error, and an unreadable one storage's error.
func pathFault(what, p string, err error) error {
	if fault.IsUnreadable(err) {
		return fmt.Errorf("%s %.200q: %w", what, p, err)
	}
	return fault.Errorf(codes.InvalidArgument, "%s %.200q: %w", what, p, err)
}
