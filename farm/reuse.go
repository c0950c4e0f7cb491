package farm

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker"
	"github.com/forerunner-build/forerunner/worker/machine"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// Reuse says when a worker may reuse the result of an earlier run.
type Reuse string

// The choices.
const (
	ReuseOff     Reuse = "off"
	ReuseProfile Reuse = "profile" // by an exact record of everything that the run looked at
)

// String returns the name of r.
func (r Reuse) String() string { return string(r) }

// Set parses name.
func (r *Reuse) Set(name string) error {
	switch Reuse(name) {
	case ReuseOff, ReuseProfile:
		*r = Reuse(name)
		return nil
	}
	return fmt.Errorf("%q is neither %s nor %s", name, ReuseOff, ReuseProfile)
}

// Type returns the type of the flag.
func (r *Reuse) Type() string { return "when" }

const (
	// reuseFile has a worker's records of runs, in its data folder.
	reuseFile = "reuse.db"
	// sharedRunsFile has a scheduler's records of runs that workers share; older programs gave it
	// its name.
	sharedRunsFile = "accounts.db"
	// reuseBytes bounds each: some 10,000 runs of a compiler.
	reuseBytes = 512 << 20
)

// checkReuse ensures that a worker with reuse can see which inputs commands read, and that one without
// has no settings of it. If the method was left open it must be FUSE, and the start reports missing
// parts.
func (w *Worker) checkReuse() error {
	const nothing = "tuning.%s: nothing is reused without --reuse=%s"
	switch {
	case w.Reuse != ReuseProfile && w.ReuseEpoch != "":
		return settings.Wrong(nothing, "reuse_epoch", ReuseProfile)
	case w.Reuse != ReuseProfile && w.ReuseMachine != "":
		return settings.Wrong(nothing, "reuse_machine", ReuseProfile)
	case w.Reuse != ReuseProfile:
	case w.ExecFilesystem == vfs.HardLink:
		return settings.Wrong("--reuse=%s: with tuning.exec_filesystem: %s the worker cannot see which inputs a command reads; use %s",
			w.Reuse, w.ExecFilesystem, vfs.FUSE)
	default:
		w.ExecFilesystem = vfs.FUSE
	}
	return nil
}

// program returns a name of this build of the program, which no other has: a hash of the file that
// runs. A version or revision is no such name: images are made without one, and from changed trees.
func program() (string, error) {
	f, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("read this program: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// setting has the facts of the worker in the key of runs, beside those of each run.
func (s *Started) setting() (worker.Setting, error) {
	w := s.w
	if w.Reuse != ReuseProfile {
		return worker.Setting{}, nil
	}
	name, err := program()
	if err != nil {
		return worker.Setting{}, fmt.Errorf("--reuse=%s: %w", w.Reuse, err)
	}
	set := worker.Setting{
		Program: name, Epoch: w.ReuseEpoch, Machine: w.ownName(), Inherited: s.inherited, Bounds: s.checked.outputs,
	}
	if s.isolation.sandbox != nil {
		seen := *s.isolation.sandbox
		seen.Hide = seen.Covered() // no command sees paths that are hidden otherwise
		set.Sandbox = &seen
	}
	return set, nil
}

// ownName names the machine in the worker's own records.
func (w *Worker) ownName() string {
	facts, err := machine.Facts(w.Data)
	if err != nil {
		w.Logger.Warn("cannot tell whether the data folder came from another machine", zap.Error(err))
	}
	named := w.ReuseMachine
	if named == ownMachine {
		named = ""
	}
	return machine.Own(named, facts)
}

// openReuse opens the worker's records of runs, nil if it keeps none. The file belongs to this
// worker.
func (w *Worker) openReuse() (_ *reuse.Records, closeStore func() error) {
	if w.Reuse != ReuseProfile {
		return nil, func() error { return nil }
	}
	store, closeStore := state.OpenFile(filepath.Join(w.Data, reuseFile),
		records.BoltOptions{Logger: w.Logger, MaxBytes: reuseBytes})
	return reuse.New(store), closeStore
}
