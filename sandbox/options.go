package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/paths"
	"github.com/forerunner-build/forerunner/refusal"
)

// Root is the path of the input root in a sandbox, with every launcher.
const Root = "/forerunner"

// ErrUnavailable is wrapped by errors that name a missing requirement of a sandbox on this machine:
// privilege, or a kind of namespace.
var ErrUnavailable = errors.New("no namespaces")

// ErrView is wrapped by errors of shown and hidden paths in Options, which are independent of the
// machine.
var ErrView = errors.New("what commands see")

// Options are common to all commands of a launcher.
type Options struct {
	// Show are files and folders of the machine that commands see besides DefaultShow, as they are
	// there, read-only. They must exist when the launcher starts, and are neither in /tmp nor in
	// /var/tmp.
	Show []string `tuning:"show" moved:"true" group:"Commands" unit:"PATH" otherwise:"none" doc:"Files and folders of this machine that commands see, read-only, besides /usr, /opt and the list in docs/EXECUTION.md"`
	// Hide are files and folders that commands find empty, including mounts below, if they are in a
	// shown folder. They must exist when the launcher starts. Nothing in them can be shown.
	Hide []string
	// FreshNetworks makes a network namespace for each command, even if the last command left
	// nothing in its own. It is for debugging: no action can see traces of another.
	FreshNetworks bool `tuning:"fresh_networks" unit:"true|false" default:"false" doc:"Makes a new network namespace for each action without a network, even if the last one could be reused"`
	// MostTerminals limits the commands' pseudo-terminals; 0 is 256.
	MostTerminals int
}

// Cgroup is a control group that commands see, the folder Dir of the machine, at Point.
type Cgroup struct{ Point, Dir string }

// CloneFlags are the namespaces in which a launcher starts. It is the first process of its process
// namespace: orphans become its children, and the kernel ends all of them when the launcher dies.
// Its host name is its own.
const CloneFlags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWUTS

// Unavailable makes an error of a sandbox wrap ErrUnavailable if the machine refuses what it needs
// (package refusal), or allows no namespaces of a kind in CloneFlags.
func Unavailable(err error) error {
	refused := refusal.Is(err) || errors.Is(err, unix.ENOSPC) && noneAllowed("/proc")
	if refused && !errors.Is(err, ErrView) {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}

// noneAllowed reports whether the machine allows no namespaces of a kind in CloneFlags, by the files
// of its limits below proc. The kernel's error is then ENOSPC, as it is when all allowed ones, or
// all mounts (fs.mount-max), are in use.
func noneAllowed(proc string) bool {
	return slices.ContainsFunc([]string{"mnt", "pid", "uts"}, func(kind string) bool {
		text, err := os.ReadFile(filepath.Join(proc, namespaceLimit(kind)))
		return err == nil && strings.TrimSpace(string(text)) == "0"
	})
}

// Lacks reports whether commands do not have a file or folder at path, neither the machine's nor
// one of their own.
func (o *Options) Lacks(path string) bool {
	path = filepath.Clean(path)
	return filepath.IsAbs(path) && !paths.Below(path, building) && !o.shows(path)
}

// Shown lists the files and folders of the machine that commands see, by their names and by the
// present targets of these. Not all of them need to exist. Commands see only the target of a
// symlink in /etc.
func (o *Options) Shown() (all []string) {
	for _, name := range slices.Concat(DefaultShow, o.Show) {
		all = append(all, filepath.Clean(name))
		if real, err := filepath.EvalSymlinks(name); err == nil {
			all = append(all, real)
		}
	}
	for _, pattern := range shownInEtc {
		names, err := filepath.Glob("/etc/" + pattern)
		if err != nil {
			continue // none of the patterns is malformed
		}
		all = append(all, names...)
	}
	return all
}

// Covered lists the real paths of Hide where commands would otherwise see something.
func (o *Options) Covered() (covered []string) {
	for _, path := range o.Hide {
		if real, err := filepath.EvalSymlinks(path); err != nil {
			covered = append(covered, path)
		} else if o.shows(real) {
			covered = append(covered, real)
		}
	}
	return covered
}

func (o *Options) shows(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(append(slices.Clone(DefaultShow), o.Show...), func(s string) bool {
		shown, err := filepath.EvalSymlinks(s)
		return err == nil && paths.Below(real, shown)
	}) || strings.HasPrefix(real, "/etc/")
}
