package worker

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

// How an output path was asked for. Clients of API 2.1 and later use
// output_paths and take whatever is there; older ones name the kind.
type outputKind int

const (
	anyOutput outputKind = iota
	fileOutput
	directoryOutput
)

// An output is a path that the client wants back.
type output struct {
	path string // as the client wrote it: relative to the working directory
	full string // relative to the input root, clean
	kind outputKind
}

// A command is a checked Command message.
type command struct {
	args             []string
	env              []string
	workingDirectory string // relative to the input root, clean; "." is the root
	outputs          []output
	format           repb.Command_OutputDirectoryFormat
}

// parseCommand checks everything about m that needs no file system.
func parseCommand(m *repb.Command) (*command, error) {
	if len(m.GetArguments()) == 0 {
		return nil, errors.New("has no arguments")
	}
	c := &command{args: m.GetArguments(), format: m.GetOutputDirectoryFormat()}
	for _, arg := range c.args {
		if strings.ContainsRune(arg, 0) {
			return nil, fmt.Errorf("argument %.80q contains NUL", arg)
		}
	}
	for _, v := range m.GetEnvironmentVariables() {
		if v.GetName() == "" || strings.ContainsAny(v.GetName(), "=\x00") || strings.ContainsRune(v.GetValue(), 0) {
			return nil, fmt.Errorf("environment variable %.80q is malformed", v.GetName())
		}
		c.env = append(c.env, v.GetName()+"="+v.GetValue())
	}
	var err error
	if c.workingDirectory, err = cleanBelow(".", m.GetWorkingDirectory()); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	// output_paths, when given, stands for the two older fields (REv2, Command).
	if len(m.GetOutputPaths()) > 0 {
		err = c.addOutputs(m.GetOutputPaths(), anyOutput)
	} else {
		//lint:ignore SA1019 clients of API 2.0 send nothing else
		files, directories := m.GetOutputFiles(), m.GetOutputDirectories()
		err = errors.Join(c.addOutputs(files, fileOutput), c.addOutputs(directories, directoryOutput))
	}
	return c, err
}

func (c *command) addOutputs(paths []string, kind outputKind) error {
	for _, p := range paths {
		full, err := cleanBelow(c.workingDirectory, p)
		if err != nil {
			return fmt.Errorf("output path: %w", err)
		}
		c.outputs = append(c.outputs, output{path: p, full: full, kind: kind})
	}
	return nil
}

// cleanBelow joins a client's path to base and refuses one that is absolute,
// holds NUL or leaves the input root.
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

// prepare makes the folders that the command expects for its outputs (REv2,
// Command.output_paths), and for output_directories, which only Bazel before
// version 7 sends and counts on, the folder itself.
func (c *command) prepare(root *os.Root) error {
	info, err := root.Stat(c.workingDirectory)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory")
	}
	if errors.Is(err, fs.ErrNotExist) && c.workingDirectory != "." {
		return fault.Errorf(codes.InvalidArgument, "working directory %q is not in the input root", c.workingDirectory)
	}
	if err != nil {
		return c.pathFault("working directory", c.workingDirectory, err)
	}
	var made []string
	for _, o := range c.outputs {
		dir := path.Dir(o.full)
		if o.kind == directoryOutput {
			dir = o.full
		}
		if slices.Contains(made, dir) {
			continue
		}
		made = append(made[max(0, len(made)-8):], dir) // outputs mostly come in runs
		if err := root.MkdirAll(dir, 0o755); err != nil {
			return c.pathFault("directory of output", o.path, err)
		}
	}
	return nil
}

// pathFault blames the client for a path that cannot be, and storage for one
// that could not be read.
func (c *command) pathFault(what, p string, err error) error {
	if fault.IsUnreadable(err) {
		return fmt.Errorf("%s %.200q: %w", what, p, err)
	}
	return fault.Errorf(codes.InvalidArgument, "%s %.200q: %w", what, p, err)
}
