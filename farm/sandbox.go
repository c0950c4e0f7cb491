package farm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/ids"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/policy"
)

// The values of --sandbox and of tuning.network.
const (
	sandboxAuto       = "auto"
	sandboxNamespaces = "namespaces"
	sandboxNone       = "none"
	networkOn         = "on"
	networkOff        = "off"
)

// isolation is the outcome of the flags on this machine.
type isolation struct {
	sandbox    *sandbox.Options // nil: none
	users      *policy.Users
	namespaces map[vfs.Owner]*os.File // of users
	own        *ids.Own               // users are these; nil: they are not the worker's own
	unnamed    error                  // why users of own have no namespaces; nil: they have
	policies   *policy.Set
	commands   sandbox.Policy // unless they or a policy set them
}

// openIsolation makes the folders that commands must not see, and their users.
func (w *Worker) openIsolation(checked checkedWorker) (isolation, error) {
	is := isolation{commands: sandbox.Policy{NoNetwork: w.Network == networkOff}, policies: checked.policies, users: checked.users}
	if w.Sandbox == sandboxNone {
		return is, nil
	}
	var err error
	is.commands.NoNetwork = w.Network != networkOn
	sees := w.Sees
	is.sandbox, sees.MostTerminals = &sees, terminalsOf(w.Slots)
	if is.sandbox.Hide, err = w.hidden(); err != nil {
		return is, err
	}
	if w.User == "" && os.Geteuid() == 0 {
		err = is.makeOwnUsers(w)
	}
	return is, err
}

// terminalsOf is how many pseudo-terminals each slot may have, so that logins to the machine have
// half of its reserve for themselves: commands take from that, too (sandbox.Options.Terminals).
func terminalsOf(slots int) int {
	const few, many = 16, 256
	text, err := os.ReadFile("/proc/sys/kernel/pty/reserve")
	if err != nil {
		return few
	}
	reserve, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return few
	}
	return max(few, min(reserve/2/max(slots, 1), many))
}

// makeOwnUsers gives each action a user namespace of its own or, if the kernel supports none, a
// user.
func (is *isolation) makeOwnUsers(w *Worker) (err error) {
	if is.own, err = ids.Take(w.Data, w.positions()); err != nil {
		return fmt.Errorf("give commands users of their own: %w (--user names another one; --user root runs commands as root of this machine)", err)
	}
	is.users = policy.OwnUsers(is.own.First, is.own.Each, is.own.Count)
	is.namespaces, err = is.users.MakeNamespaces()
	if errors.Is(err, sandbox.ErrNoUserNamespace) {
		is.unnamed = err
		is.users, err = policy.OwnUsers(is.own.First, 0, is.own.Count), nil
	}
	return err
}

// warnOfUsers warns about the user of commands if it is not isolated. It is called when the sandbox
// is known.
func (is *isolation) warnOfUsers(log *zap.Logger) {
	switch {
	case is.own == nil:
	case is.sandbox == nil:
		log.Warn("no users for actions: commands run as root, like this worker",
			zap.String("costs", "a command can do everything that this worker can"),
			zap.String("remedy", "a sandbox, or --user=FIRST-LAST"))
	case is.unnamed != nil:
		log.Warn("no user namespaces: each action runs as its own user, who is not root", zap.NamedError("missing", is.unnamed),
			zap.String("costs", "large input roots are served without metadata images, and commands cannot change owners"),
			zap.String("remedy", "sysctl user.max_user_namespaces above zero"))
	}
}

// defaults are the worker's settings for commands that set none.
func (is *isolation) defaults() policy.Defaults {
	return policy.Defaults{Sandboxed: is.sandbox != nil, Sandbox: is.commands, Users: is.users, Policies: is.policies}
}

// close releases the resources of openIsolation.
func (is *isolation) close() error {
	var errs []error
	for _, f := range is.namespaces {
		errs = append(errs, f.Close())
	}
	return errors.Join(append(errs, is.own.Close())...)
}

// hidden lists the paths that commands never see, wherever they are: folders of data, which it
// makes, and files in flags.
func (w *Worker) hidden() (hide []string, err error) {
	for _, dir := range append([]string{w.Data, w.below(w.CacheDir, "cas"), w.below(w.Mount, "mount")}, w.Sees.Hide...) {
		if dir, err = filepath.Abs(dir); err != nil {
			return nil, err
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, datafolder.Advised(err)
		}
		hide = append(hide, dir)
	}
	if records := w.State.File(); records != "" {
		makeFile(records)
	}
	for _, file := range w.files() {
		if file == "" {
			continue
		}
		if file, err = filepath.Abs(file); err != nil {
			return nil, err
		}
		real, err := filepath.EvalSymlinks(file)
		if err != nil {
			continue // it is missing; its reader reports that
		}
		// The folder as other processes see it: /proc/self differs for the process that hides it.
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			return nil, err
		}
		for _, file := range []string{filepath.Join(dir, filepath.Base(file)), real} {
			if dir := filepath.Dir(file); !w.isListed(dir) {
				file = dir // also when another one takes its place
			} else {
				w.Logger.Warn("a file that a flag names is hidden from commands until another file replaces it",
					zap.String("file", file), zap.String("remedy", "put it into a folder of its own"))
			}
			hide = append(hide, file)
		}
	}
	return append(hide, environmentFiles(os.Environ())...), nil
}

// files are those in the flags and the configuration.
func (w *Worker) files() []string {
	return slices.Concat(config.Files(w.ConfigFile), []string{w.Policies, w.State.File()}, w.Ports.Files(), w.Client.Files(), w.HideFiles)
}

// environmentFiles are the files in environment variables that not everybody may read, or that have
// keys: of credentials that libraries find by themselves.
func environmentFiles(environment []string) (files []string) {
	for _, v := range environment {
		name, value, _ := strings.Cut(v, "=")
		if !filepath.IsAbs(value) {
			continue
		}
		info, err := os.Stat(value)
		if err != nil || !info.Mode().IsRegular() {
			continue
		}
		if info.Mode()&0o004 == 0 || strings.HasPrefix(name, "OTEL_") {
			files = append(files, value)
		}
	}
	return files
}

// makeFile makes an empty file, so that it can be hidden before it is written; its reader reports
// why it cannot be made.
func makeFile(file string) {
	_ = os.MkdirAll(filepath.Dir(file), 0o755)
	if f, err := os.OpenFile(file, os.O_CREATE|os.O_RDONLY, 0o600); err == nil {
		_ = f.Close()
	}
}

// isListed reports whether commands see a folder as such: its other files are not hidden with one.
func (w *Worker) isListed(dir string) bool {
	listed := append([]string{"/", "/etc", "/etc/ssl", "/etc/ssl/certs", "/etc/pki/tls/certs"}, sandbox.DefaultShow...)
	for _, path := range w.Sees.Show {
		listed = append(listed, filepath.Clean(path))
	}
	switch filepath.Base(dir) {
	case "bin", "sbin", "lib", "lib64", "libexec", "share":
		return true
	}
	return slices.Contains(listed, dir)
}

// tryLaunch starts a launcher. The first one may turn out not to have a sandbox on
// this machine; then none has, if the flags allow it.
func (s *Started) tryLaunch(ctx context.Context, i int) (*runner.Launcher, error) {
	launcher, err := s.launch(ctx, i)
	if !errors.Is(err, sandbox.ErrUnavailable) || s.w.Sandbox == sandboxNamespaces || i > 0 || len(s.w.Sees.Show) > 0 {
		return launcher, err
	}
	if missing := s.doWithoutSandbox(); missing != nil {
		return nil, settings.Wrong("%w", errors.Join(missing, err))
	}
	s.w.Logger.Warn("no sandbox: commands see the machine and one another", zap.NamedError("missing", err),
		zap.String("costs", "a command may read the local store and change what others leave, in /tmp and wherever "+
			"its user may write, and has the network; who may run actions acts as that user; absolute paths in outputs "+
			"depend on the slot, and outputs are copied"),
		zap.String("remedy", "run as root with CAP_SYS_ADMIN (in a container --privileged) on Linux 5.12 or later"))
	s.isolation.sandbox = nil
	return s.launch(ctx, i)
}

// doWithoutSandbox returns an error if the worker needs the sandbox that this machine has not. Mere
// defaults of a sandbox are dropped.
func (s *Started) doWithoutSandbox() error {
	if err := s.w.checkUnboxed(); err != nil {
		return err
	}
	s.isolation.commands.NoNetwork = false
	if s.isolation.own != nil {
		s.isolation.users = nil
	}
	return nil
}

// checkUnboxed returns an error if a setting needs a sandbox, or if the user of commands cannot reach
// their input roots, which are at the worker's path without one.
func (w *Worker) checkUnboxed() error {
	switch {
	case w.Network == networkOff:
		return errors.New("tuning.network: off needs --sandbox=namespaces")
	case len(w.Sees.Show) > 0:
		return errors.New("tuning.show needs --sandbox=namespaces; without a sandbox commands see all files of their user")
	case w.User == "":
		return nil
	}
	for _, dir := range []string{w.below(w.Mount, "mount"), filepath.Join(w.Data, "upper")} {
		if err := passable(dir); err != nil {
			return fmt.Errorf("--user without a sandbox: %w", err)
		}
	}
	return nil
}

// passable returns an error that names a folder on the path to dir that other users cannot enter.
// Missing folders will be open.
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
