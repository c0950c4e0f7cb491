package farm

import (
	"net"
	"os"
	"runtime"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/worker/historical"
	"github.com/forerunner-build/forerunner/worker/outputs"
	"github.com/forerunner-build/forerunner/worker/policy"
)

// mostCopied is the largest input root that may be copied: it is in memory meanwhile.
const mostCopied = 16 << 20

// A checkedWorker is what the settings of a worker mean. Nothing was created for it.
type checkedWorker struct {
	limits      []cgroup.Limits // of each slot; none: no cgroups are wanted
	users       *policy.Users   // nil: --user names none
	policies    *policy.Set     // nil: none
	upperMemory int64
	copyBytes   int64 // 0: no input roots are copied
	storeBytes  int64 // 0: a share of the free space
	outputs     outputs.Policy
	browser     *historical.Browser // nil: none
	id          map[string]string
	protect     serve.Protection // of the ports
}

// check turns the settings of the worker on its machine into values, and fills in those that depend
// on the machine. Everything that can be wrong about them is found here, before a folder exists, and
// is a settings.WrongError.
func (w *Worker) check() (c checkedWorker, err error) {
	switch {
	case w.Slots < 0:
		return c, settings.Wrong("--slots %d: give the number of commands that run at once, or 0 for one for each CPU", w.Slots)
	case w.Slots == 0:
		w.Slots = runtime.NumCPU()
	}
	if w.ReportWidth < 0 {
		w.ReportWidth = w.Slots
	}
	if err := serve.CheckFiles(int64(filesOfWorker + filesOfPosition*w.positions())); err != nil {
		return c, err
	}
	if err := w.absolute(); err != nil {
		return c, err
	}
	if err := checkFolder("tuning.cache_dir", w.CacheDir); err != nil {
		return c, err
	}
	if err := checkFolder("tuning.mount", w.Mount); err != nil {
		return c, err
	}
	if c.limits, err = w.divide(); err != nil {
		return c, err
	}
	if err := w.checkIsolation(&c); err != nil {
		return c, err
	}
	if err := w.checkReuse(); err != nil {
		return c, err
	}
	if c.upperMemory, c.outputs, err = w.writes(); err != nil {
		return c, err
	}
	if c.copyBytes, err = settings.ParseSize(w.CopiedRoots); err != nil || c.copyBytes > mostCopied {
		return c, settings.Wrong("tuning.copied_roots %q: give a size up to 16M", w.CopiedRoots)
	}
	if c.storeBytes, err = settings.ParseSize(w.CacheSize); err != nil {
		return c, settings.Wrong("--cache-size: %w", err)
	}
	if _, err := w.memoryCache(); err != nil {
		return c, err
	}
	if c.browser, err = w.browser(); err != nil {
		return c, err
	}
	c.id, err = w.identity()
	return c, err
}

// checkFolder returns an error if something else than a folder is at the path of a setting. The folder
// need not be there.
func checkFolder(name, path string) error {
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		return settings.Wrong("%s: %s is not a folder", name, path)
	}
	return nil
}

// checkIsolation reads the settings of commands.
func (w *Worker) checkIsolation(c *checkedWorker) (err error) {
	if w.Policies != "" {
		if c.policies, err = policy.Load(w.Policies); err != nil {
			return settings.Wrong("--policies: %w", err)
		}
	}
	if w.User != "" {
		if c.users, err = policy.LookUpUsers(w.User); err != nil {
			return settings.Wrong("--user: %w", err)
		}
	}
	if err := c.users.Suffice(w.positions()); err != nil {
		return settings.Wrong("%w", err)
	}
	if err := c.policies.Suffice(w.positions()); err != nil {
		return settings.Wrong("--policies: %w", err)
	}
	if err := w.Sees.CheckShow(); err != nil {
		return settings.Wrong("tuning.show: %w", err)
	}
	if w.Sandbox != sandboxNone {
		return nil
	}
	if err := w.checkUnboxed(); err != nil {
		return settings.Wrong("%w", err)
	}
	return nil
}

// checkCalls checks the settings of calls, to the worker and by it, and returns the protection of
// its ports.
func (w *Worker) checkCalls() (protect serve.Protection, err error) {
	if err := w.Callers.Check(); err != nil {
		return protect, err
	}
	w.Client.Logger = w.Logger
	if err := instance.Check(w.InstancePrefix); err != nil {
		return protect, settings.Wrong("tuning.instance_prefix: %w", err)
	}
	if err := w.Client.Check(w.Scheduler); err != nil {
		return protect, settings.Wrong("--scheduler: %w", err)
	}
	for _, check := range []func() error{
		func() error { return w.Client.CheckStorage(w.storageAddress(), w.ActionCache) },
		func() error { return w.State.Check(&w.Client) },
		w.Tracing.Check,
		func() error { return w.Ports.CheckHTTP(w.HTTP) },
		w.checkServeCache,
	} {
		if err := check(); err != nil {
			return protect, err
		}
	}
	return w.protect()
}

// protect makes the protection of the worker's ports.
func (w *Worker) protect() (protect serve.Protection, err error) {
	access := auth.Options{Logger: w.Logger}
	file, err := config.Read(w.ConfigFile)
	if err != nil {
		return protect, settings.Wrong("--config: %w", err)
	}
	file.Authorize(&access)
	access.Owning = auth.OfInstances // a worker has no operations of its own
	return w.Ports.Protect(access)
}

// checkServeCache checks the address that other workers use.
func (w *Worker) checkServeCache() error {
	if w.ServeCache == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(w.ServeCache)
	if err != nil {
		return settings.Wrong("--serve-cache: %w", err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return settings.Wrong("--serve-cache %s: other workers use this address: give a host that they can reach", w.ServeCache)
	}
	return w.Ports.Check("--serve-cache", w.ServeCache)
}
