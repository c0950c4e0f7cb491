package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/sandbox"
)

// As in a shell.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// notStartedError is the fault of the command, not of the machinery.
type notStartedError struct {
	text     string
	exitCode int
	missing  string // the interpreter that was not found
}

func (e *notStartedError) Error() string { return e.text }

func notFound(format string, args ...any) error {
	return &notStartedError{text: fmt.Sprintf(format, args...), exitCode: exitNotFound}
}

func notExecutable(format string, args ...any) error {
	return &notStartedError{text: fmt.Sprintf(format, args...), exitCode: exitNotExecutable}
}

// machineryErrors are errors of fork and exec that are not due to the command.
var machineryErrors = []error{
	unix.EAGAIN, unix.ENOMEM, unix.ENODEV, unix.ENOSYS, unix.EBADF, unix.EMFILE, unix.ENFILE,
	unix.EBUSY, unix.EOPNOTSUPP, unix.ENOSPC, unix.EUSERS, unix.EDQUOT,
}

// start forks and executes on the calling thread. It may take as long as the file
// systems take that the program and its directory are on. What is wrong is found out
// only after exec has failed: looking first would cost every command.
func (s *server) start(in *sandbox.Thread, m *message, files []uintptr) (pid int, err error) {
	if err := checkStrings(m.Run); err != nil {
		return 0, err
	}
	if err := s.setOOMScore(); err != nil {
		return 0, err
	}
	var c *sandbox.Child
	if in != nil {
		if c, err = s.box.Child(&m.Run.Policy, m.file(fileNamespace)); err != nil {
			return 0, err
		}
	}
	startIn := func(cgroupFD int) error {
		fork := func() (err error) {
			pid, err = forkExec(m.Run, files, cgroupFD, c)
			return err
		}
		if in != nil {
			return in.Enter(&m.Run.Policy, m.mounts(), fork)
		}
		return fork()
	}
	if s.slot != nil {
		err = s.slot.Start(startIn)
	} else {
		err = startIn(-1)
	}
	return pid, err
}

// forkExec starts the command where the calling thread is; c is nil without a sandbox.
func forkExec(req *runRequest, files []uintptr, cgroupFD int, c *sandbox.Child) (pid int, err error) {
	who := req.Policy.User.Credential()
	program := req.Args[0]
	if !strings.Contains(program, "/") {
		if err := withRights(who, func() (err error) {
			program, err = resolve(req)
			return err
		}); err != nil {
			return 0, err
		}
	}
	attr := &syscall.ProcAttr{
		Dir: req.Dir, Env: req.Env, Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid: true, Pdeathsig: unix.SIGKILL, Credential: who,
			UseCgroupFD: cgroupFD >= 0, CgroupFD: cgroupFD,
		},
	}
	if req.Nice != 0 {
		restore, err := addNiceness(req.Nice)
		if err != nil {
			return 0, err
		}
		defer restore()
	}
	if c != nil {
		attr.Sys.Cloneflags = unix.CLONE_NEWIPC
		pid, err = c.Fork(program, req.Args, attr)
	} else {
		pid, err = syscall.ForkExec(program, req.Args, attr)
	}
	if err != nil {
		return 0, withRights(who, func() error { return diagnose(req, program, err) })
	}
	return pid, nil
}

// addNiceness changes the niceness of the calling thread, and so of what it forks,
// until restore is called.
func addNiceness(n int) (restore func(), err error) {
	const thisThread = 0
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, thisThread)
	if err != nil {
		return nil, fmt.Errorf("read niceness: %w", err)
	}
	old := 20 - raw // the system call has no negative results
	if err := unix.Setpriority(unix.PRIO_PROCESS, thisThread, old+n); err != nil {
		return nil, fmt.Errorf("add %d to niceness: %w", n, err)
	}
	return func() {
		if err := unix.Setpriority(unix.PRIO_PROCESS, thisThread, old); err != nil {
			panic(fmt.Sprintf("restore niceness: %v", err)) // root may
		}
	}, nil
}

func checkStrings(req *runRequest) error {
	if len(req.Args) == 0 {
		return notFound("the command has no arguments")
	}
	if req.Args[0] == "" {
		return notFound("the command's name is empty")
	}
	hasNUL := func(s string) bool { return strings.IndexByte(s, 0) >= 0 }
	if i := slices.IndexFunc(req.Args, hasNUL); i >= 0 {
		return notExecutable("argument %d contains a NUL byte", i)
	}
	if i := slices.IndexFunc(req.Env, hasNUL); i >= 0 {
		return notExecutable("environment variable %d contains a NUL byte", i)
	}
	if hasNUL(req.Dir) {
		return notExecutable("working directory %q contains a NUL byte", req.Dir)
	}
	return nil
}

// resolve finds the program of a name without a slash (REv2, Command.arguments). A result without a
// leading slash is relative to the working directory.
func resolve(req *runRequest) (string, error) {
	name := req.Args[0]
	path := searchPath(req.Env)
	denied := ""
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "." // as execvp(3) has it
		}
		file := dir + "/" + name
		info, err := os.Stat(fromDir(req, file))
		if err != nil || info.IsDir() {
			continue
		}
		if info.Mode()&0o111 != 0 {
			return file, nil
		}
		denied = file
	}
	if err := checkDir(req); err != nil {
		return "", err
	}
	if denied != "" {
		return "", notExecutable("exec %q: %s is not executable", name, req.shorten(denied))
	}
	return "", notFound("exec %q: no such file or directory in PATH %q", name, path)
}

// searchPath is the command's own PATH; of several the first counts, as in getenv(3).
func searchPath(env []string) string {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			if v == "" {
				return "."
			}
			return v
		}
	}
	return DefaultPath
}

func fromDir(req *runRequest, file string) string {
	if strings.HasPrefix(file, "/") {
		return file
	}
	// Not Join: "a/../b" is another file than "b" if a is a symlink.
	return req.Dir + "/" + file
}

// shorten shows a path below the input root as the client knows it.
func (r *runRequest) shorten(path string) string {
	if r.Root == "" {
		return path
	}
	if path == r.Root {
		return "."
	}
	return strings.TrimPrefix(path, strings.TrimSuffix(r.Root, "/")+"/")
}

func checkDir(req *runRequest) error {
	info, err := os.Stat(req.Dir)
	if err != nil {
		return notFound("working directory %q: %v", req.shorten(req.Dir), errnoOf(err))
	}
	if !info.IsDir() {
		return notExecutable("working directory %q: not a directory", req.shorten(req.Dir))
	}
	return nil
}

// errnoOf strips the path, which the text around it shows in the client's terms.
func errnoOf(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// diagnose turns an errno of fork, chdir and exec into what is wrong.
func diagnose(req *runRequest, program string, err error) error {
	if slices.Contains(machineryErrors, err) {
		return fmt.Errorf("fork and exec: %w", err)
	}
	if err := checkDir(req); err != nil {
		return err
	}
	name := req.Args[0]
	if err == unix.E2BIG {
		return notExecutable("exec %q: %d bytes of arguments and environment are too many (or one of them is too long)",
			name, stringBytes(req))
	}
	info, statErr := os.Stat(fromDir(req, program))
	switch {
	case errors.Is(statErr, os.ErrNotExist):
		return notFound("exec %q: no such file or directory", name)
	case statErr != nil:
		return notExecutable("exec %q: %v", name, errnoOf(statErr))
	case info.IsDir():
		return notExecutable("exec %q: is a directory", name)
	case info.Mode()&0o111 == 0:
		return notExecutable("exec %q: not executable (mode %v)", name, info.Mode())
	case err == unix.ENOEXEC:
		return notExecutable("exec %q: neither a program for this machine nor a script with a #! line", name)
	case err == unix.ENOENT:
		what, path := interpreter(fromDir(req, program))
		return &notStartedError{
			text:     fmt.Sprintf("exec %q: the file is there but not its %s", name, what),
			exitCode: exitNotFound, missing: path,
		}
	}
	return notExecutable("exec %q: %v", name, err)
}

func stringBytes(req *runRequest) int {
	n := 0
	for _, list := range [][]string{req.Args, req.Env} {
		for _, s := range list {
			n += len(s) + 1
		}
	}
	return n
}

// interpreter names what the kernel could not find to run a file with, with its path if that is
// known.
func interpreter(file string) (what, path string) {
	f, err := os.Open(file)
	if err != nil {
		return "interpreter", ""
	}
	defer f.Close()
	head := make([]byte, 256) // as much as the kernel looks at
	n, _ := f.Read(head)      // a file that cannot be read has no interpreter to name
	line, ok := strings.CutPrefix(string(head[:n]), "#!")
	if !ok {
		return "dynamic loader", ""
	}
	line, _, _ = strings.Cut(line, "\n")
	if words := strings.Fields(line); len(words) > 0 {
		return fmt.Sprintf("interpreter %q", words[0]), words[0]
	}
	return "interpreter", ""
}
