package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// SandboxRoot is where the commands of a sandbox find their input root, whichever
// launcher runs them.
const SandboxRoot = "/forerunner"

// ErrNoSandbox is wrapped by the errors of StartLauncher that say what this machine
// lacks for a Sandbox: privilege, or a kind of namespace.
var ErrNoSandbox = errors.New("no namespaces")

// Sandbox keeps the commands of a launcher apart from the machine and from other
// launchers' commands, in namespaces of their own. The package comment says what
// they see.
type Sandbox struct {
	// Show are files and folders of the machine that commands see besides DefaultShow, as they
	// are there, read-only. They must exist when the launcher starts, and are neither in /tmp nor in /var/tmp.
	Show []string
	// Hide are files and folders that commands find empty, with what is mounted below, if
	// they are in what is shown. They must exist when the launcher starts. What is in them
	// cannot be shown.
	Hide []string
}

// ErrNoUserNamespace is wrapped by errors that say what this machine lacks for users with IDs.
var ErrNoUserNamespace = errors.New("no user namespaces")

// User is whom a command runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
	// IDs, if not 0, makes the command root in a user namespace of its own, whose ids from 0
	// on are those from UID and GID on, so many of each: it may be these users and groups, and
	// outside it is root to nobody. It needs a Sandbox.
	IDs uint32
}

// sandboxFlags are the namespaces that a launcher is born into. It is the first
// process of its process namespace: whatever loses its parent becomes its child, and
// the kernel ends all of it when the launcher dies.
const sandboxFlags = unix.CLONE_NEWNS | unix.CLONE_NEWPID

// noSandbox makes an error of spawning into namespaces say so.
func noSandbox(err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("%w: make mount and process namespaces: %w", ErrNoSandbox, err)
	}
	return err
}

// request makes the message that has c run. Its descriptors are the caller's to
// close, also after an error.
func (l *Launcher) request(c *Command) (message, error) {
	m := message{Kind: kindRun, Run: &runRequest{
		Args: c.Args, Env: c.Env, Dir: c.Dir, Root: c.Root,
		MaxOutputBytes: c.MaxOutputBytes, Grace: c.Grace,
		User: c.User, Nice: c.Nice, NoNetwork: c.NoNetwork, Allow: c.Allow,
	}}
	for _, o := range []struct {
		kind fileKind
		path string
	}{{fileStdout, c.Stdout}, {fileStderr, c.Stderr}} {
		if o.path == "" {
			continue
		}
		fd, err := unix.Open(o.path, unix.O_CREAT|unix.O_TRUNC|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if err != nil {
			return m, &os.PathError{Op: "create output file", Path: o.path, Err: err}
		}
		m.addFile(o.kind, fd)
	}
	if l.sandbox != nil {
		return m, m.addMounts(c)
	}
	return m, nil
}

func (m *message) addFile(k fileKind, fd int) {
	m.Files, m.files = append(m.Files, k), append(m.files, fd)
}

// addMounts takes the folders of c along as mounts that are nowhere yet, and moves
// its paths to where they will be.
func (m *message) addMounts(c *Command) error {
	for _, d := range []struct {
		kind fileKind
		path string
	}{{fileRoot, c.Root}, {fileTempDir, c.TempDir}} {
		fd, err := unix.OpenTree(unix.AT_FDCWD, d.path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return &os.PathError{Op: "take a mount of", Path: d.path, Err: err}
		}
		m.addFile(d.kind, fd)
	}
	if !c.NoNetwork {
		m.addNames()
	}
	m.Run.Root = SandboxRoot
	m.Run.Dir = filepath.Join(SandboxRoot, strings.TrimPrefix(c.Dir, c.Root))
	return nil
}

// networkFiles are those of the machine's by which a command with its network finds others.
var networkFiles = []struct {
	kind fileKind
	path string
}{{fileResolv, "/etc/resolv.conf"}, {fileHosts, "/etc/hosts"}}

// addNames takes networkFiles along as they are now. A machine may lack one.
func (m *message) addNames() {
	for _, f := range networkFiles {
		fd, err := unix.OpenTree(unix.AT_FDCWD, f.path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err == nil {
			m.addFile(f.kind, fd)
		}
	}
}

// checkSandboxed says what c lacks, or asks too much, for a launcher of its kind.
func (c *Command) checkSandboxed(sandboxed bool) error {
	switch {
	case !sandboxed && c.User != nil && c.User.IDs > 0:
		return errors.New("a user namespace can only be had in a sandbox")
	case !sandboxed && c.NoNetwork:
		return errors.New("the network can only be taken from a command in a sandbox")
	case !sandboxed:
		return nil
	case !filepath.IsAbs(c.Root) || !filepath.IsAbs(c.TempDir):
		return errors.New("a sandbox needs an input root and a temporary folder")
	case !isBelow(filepath.Clean(c.Dir), filepath.Clean(c.Root)):
		return fmt.Errorf("working directory %q is not in the input root", c.Dir)
	}
	return nil
}

func (u *User) credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}
