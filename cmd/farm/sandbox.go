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
	"github.com/forerunner-build/forerunner/vfs"
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
	f.StringVar(&w.User, "user", "", "`user` that commands run as in a sandbox, a name or UID:GID (default the worker's own)")
	f.StringVar(&w.Policies, "policies", "", "YAML `file` of execution policies: wrappers, environment, niceness, network and user by platform")
}

// isolation is what the flags come to on this machine.
type isolation struct {
	sandbox  *runner.Sandbox // nil: none
	user     *worker.NamedUser
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
		if is.user, err = worker.LookUpUser(w.User); err != nil {
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
			return is, err
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
	if missing := s.needsSandbox(); missing != nil {
		return nil, errors.Join(missing, err)
	}
	s.w.Logger.Warn("no sandbox: commands see the machine and one another", zap.NamedError("missing", err),
		zap.String("costs", "a command may read the local store and change what others leave, in /tmp and wherever "+
			"its user may write; absolute paths in outputs depend on the slot"),
		zap.String("to_have_it", "run as root with CAP_SYS_ADMIN (in a container --privileged) on Linux 5.12 or later"))
	s.isolation.sandbox = nil
	return s.launch(ctx, i)
}

// needsSandbox names a flag that means nothing without a sandbox.
func (s *Started) needsSandbox() error {
	switch {
	case s.w.User != "":
		return errors.New("--user needs --sandbox=namespaces")
	case s.w.Network == networkOff:
		return errors.New("--network=off needs --sandbox=namespaces")
	}
	return nil
}

// owner is whom input roots belong to; nil is the worker's user.
func (is *isolation) owner() *vfs.Owner {
	if is.user == nil {
		return nil
	}
	return &vfs.Owner{UID: is.user.UID, GID: is.user.GID}
}
