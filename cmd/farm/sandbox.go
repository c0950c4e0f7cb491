package farm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker"
)

// choice is the value of a flag that takes one of a few words.
type choice struct {
	value *string
	words []string
}

func (c choice) String() string { return *c.value }
func (c choice) Type() string   { return "choice" }

func (c choice) Set(s string) error {
	for _, w := range c.words {
		if s == w {
			*c.value = s
			return nil
		}
	}
	return fmt.Errorf("%q is none of %q", s, c.words)
}

// The values of --sandbox and of --network.
const (
	sandboxAuto       = "auto"
	sandboxNamespaces = "namespaces"
	sandboxNone       = "none"
	networkOn         = "on"
	networkOff        = "off"
)

// IsolationFlags registers the flags that say how commands are kept apart.
func (w *Worker) IsolationFlags(f *pflag.FlagSet) {
	w.Sandbox, w.Network = sandboxAuto, networkOn
	f.Var(choice{&w.Sandbox, []string{sandboxAuto, sandboxNamespaces, sandboxNone}}, "sandbox",
		"`kind` of sandbox that commands run in: namespaces; none; auto, namespaces where this machine can")
	f.Var(choice{&w.Network, []string{networkOn, networkOff}}, "network",
		"`on` or off for commands whose platform does not say network=on or off")
	f.StringVar(&w.User, "user", "", "`user` that commands run as: a name; UID:GID; or a range FIRST-LAST, "+
		"a user for each action at a time (default the worker's own)")
	f.StringVar(&w.Policies, "policies", "", "YAML `file` of execution policies: wrappers, environment, niceness, network and user by platform")
}

// isolation is what the flags come to on this machine.
type isolation struct {
	sandbox  *runner.Sandbox // nil: none
	users    *worker.Users
	policies *worker.Policies
}

// checkIsolation reads what the flags name, and makes the folders that commands are
// not to see.
func (w *Worker) checkIsolation() (isolation, error) {
	var is isolation
	var err error
	if w.Policies != "" {
		if is.policies, err = worker.LoadPolicies(w.Policies); err != nil {
			return is, fmt.Errorf("--policies: %w", err)
		}
	}
	if w.User != "" {
		if is.users, err = worker.LookUpUsers(w.User); err != nil {
			return is, fmt.Errorf("--user: %w", err)
		}
	}
	if w.Sandbox == sandboxNone {
		return is, nil
	}
	is.sandbox = &runner.Sandbox{}
	for _, dir := range append([]string{w.Data, w.below(w.CacheDir, "cas"), w.below(w.Mount, "mount")}, w.Hide...) {
		if dir, err = filepath.Abs(dir); err != nil {
			return is, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return is, fmt.Errorf("%w (choose another folder with --data)", err)
		}
		is.sandbox.Hide = append(is.sandbox.Hide, dir)
	}
	return is, nil
}

// tryLaunch starts a launcher. The first one may turn out not to have a sandbox on
// this machine; then none has, if the flags allow it.
func (s *Started) tryLaunch(ctx context.Context, i int) (*runner.Launcher, error) {
	launcher, err := s.launch(ctx, i)
	if !errors.Is(err, runner.ErrNoSandbox) || s.w.Sandbox == sandboxNamespaces || i > 0 {
		return launcher, err
	}
	if missing := s.w.doWithoutSandbox(); missing != nil {
		return nil, errors.Join(missing, err)
	}
	s.w.Logger.Warn("no sandbox: commands see the machine and one another", zap.NamedError("missing", err),
		zap.String("costs", "a command may read the local store and change what others leave, in /tmp and wherever "+
			"its user may write; absolute paths in outputs depend on the slot, and outputs are copied"),
		zap.String("to_have_it", "run as root with CAP_SYS_ADMIN (in a container --privileged) on Linux 5.12 or later"))
	s.isolation.sandbox = nil
	return s.launch(ctx, i)
}

// doWithoutSandbox returns an error if a flag means nothing without a sandbox, or if
// the user of commands could not get to their input roots, which are then where the
// worker has them.
func (w *Worker) doWithoutSandbox() error {
	if w.Network == networkOff {
		return errors.New("--network=off needs --sandbox=namespaces")
	}
	if w.User == "" {
		return nil
	}
	for _, dir := range []string{w.below(w.Mount, "mount"), filepath.Join(w.Data, "upper")} {
		if err := passable(dir); err != nil {
			return fmt.Errorf("--user without a sandbox: %w", err)
		}
	}
	return nil
}

// passable returns an error that names a folder on the way to dir that is closed to
// other users. What is not there yet will be open.
func passable(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	for {
		info, err := os.Stat(dir)
		switch {
		case err != nil && !errors.Is(err, os.ErrNotExist):
			return err
		case err == nil && info.Mode()&0o001 == 0:
			return fmt.Errorf("other users cannot pass through %s to input roots (mode %v): chmod o+x it, or put --data elsewhere",
				dir, info.Mode())
		case dir == "/":
			return nil
		}
		dir = filepath.Dir(dir)
	}
}
