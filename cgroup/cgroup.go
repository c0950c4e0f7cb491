package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/refusal"
)

// ErrUnavailable means that this machine or these privileges offer no usable hierarchy (package
// refusal). The error that wraps it lists every attempt and the missing parts.
var ErrUnavailable = errors.New("cgroups unavailable")

// ErrInUse means that a living process holds the group of the same name.
var ErrInUse = errors.New("group in use by another process")

// ErrBusy means that processes did not end.
var ErrBusy = errors.New("group still has processes")

// stalePatience bounds how long Open waits for the leftovers of a dead process.
const stalePatience = 10 * time.Second

// Options configures a Parent.
type Options struct {
	// Name distinguishes this process's groups from those of other processes, and identifies them
	// after a crash: letters, digits, '-', '_' and '.'. Required.
	Name string
	// Version restricts the choice to cgroup v1 or v2; 0 takes the better one.
	Version int
	// Logger logs leftovers; nil logs nothing.
	Logger *zap.Logger
}

func (o *Options) validate() error {
	if err := checkName(o.Name); err != nil {
		return err
	}
	if o.Version < 0 || o.Version > 2 {
		return fmt.Errorf("cgroup version %d: want 0, 1 or 2", o.Version)
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return nil
}

// checkName rejects names that could leave the directory. A collision with the kernel's own files
// is impossible because every group made here has a prefix.
func checkName(name string) error {
	if name == "" || len(name) > 128 {
		return fmt.Errorf("group name %q: want 1 to 128 characters", name)
	}
	const special = "-_."
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case strings.ContainsRune(special, r):
		default:
			return fmt.Errorf("group name %q: character %q not allowed", name, r)
		}
	}
	return nil
}

const (
	parentPrefix = "forerunner-"
	slotPrefix   = "slot-"
	homeName     = "launchers"
	asideName    = "worker"
	runName      = "run"
)

// Parent is the group that holds the slots of this process.
type Parent struct {
	version int
	dir     string
	lock    *os.File // of dir, flocked
	log     *zap.Logger

	controls map[string]control // by controller
	others   []string           // the groups in v1 hierarchies that have none of the controllers
	missing  []error
	enabled  []string // the controllers that the group around ours hands down because of us
	home     string   // the group that this process moved out of for that; empty: it did not
}

// Open makes the group forerunner-<Name> below the group of this process, in the best available
// hierarchy (see the package comment). It first kills and removes leftovers of a dead process with
// the same name, which may take up to ten seconds. Errors: ErrUnavailable, ErrInUse, ErrBusy.
//
// Each controller is used in the hierarchy that has it; Missing lists the unusable ones. To get v2
// controllers, this process may have to move into a group below the Parent's, until Close.
func Open(o Options) (*Parent, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	around, err := lookAround()
	if err != nil {
		return nil, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	hs := around.hierarchies(o.Version)
	if len(hs) == 0 {
		return nil, fmt.Errorf("%w: neither a v2 hierarchy nor a v1 freezer is mounted "+
			"where this process could see its own group", ErrUnavailable)
	}
	var why []error
	for _, h := range hs {
		p, err := openIn(h, o)
		if err == nil {
			p.openControls(around, h.own)
			return p, nil
		}
		if !refusal.Is(err) {
			return nil, err
		}
		why = append(why, fmt.Errorf("v%d: %w", h.version, err))
	}
	return nil, fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(why...))
}

func openIn(h hierarchy, o Options) (*Parent, error) {
	p := &Parent{version: h.version, log: o.Logger}
	p.dir = filepath.Join(h.own, parentPrefix+o.Name)
	var err error
	if p.lock, err = lockDir(p.dir); err != nil {
		return nil, err
	}
	need := "cgroup.kill"
	if h.version == 1 {
		need = "freezer.state"
	}
	if _, err := os.Stat(filepath.Join(p.dir, need)); err != nil {
		return nil, errors.Join(fmt.Errorf("groups have no %s: %w", need, err), p.Close())
	}
	if err := p.CleanStale(); err != nil {
		return nil, errors.Join(err, p.lock.Close())
	}
	if err := os.Mkdir(filepath.Join(p.dir, homeName), 0o755); err != nil {
		return nil, errors.Join(fmt.Errorf("make group: %w", err), p.Close())
	}
	return p, nil
}

// lockDir makes dir and takes the lock that shows its owner is alive. The loop is
// for an owner that removes the directory between our mkdir and our flock.
func lockDir(dir string) (*os.File, error) {
	const mode = 0o711 // a process that can open it can lock it, too
	for range 10 {
		if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("make group: %w (root and a writable cgroup mount are needed)", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("open group: %w", err)
		}
		if err := f.Chmod(mode); err != nil {
			f.Close()
			return nil, fmt.Errorf("close group to others: %w", err)
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if errors.Is(err, unix.EWOULDBLOCK) {
				return nil, fmt.Errorf("%w: %s", ErrInUse, dir)
			}
			return nil, fmt.Errorf("lock group %s: %w", dir, err)
		}
		mine, err1 := f.Stat()
		there, err2 := os.Stat(dir)
		if err1 == nil && err2 == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%w: %s keeps vanishing", ErrInUse, dir)
}

// CleanStale is the part of Open that kills all processes in the groups below p and removes the
// groups, launchers too. An owner of slots must not call it.
func (p *Parent) CleanStale() error {
	left, err := subgroups(p.dir)
	if err != nil {
		return fmt.Errorf("list stale groups: %w", err)
	}
	start := time.Now()
	giveUp := func() error {
		if time.Since(start) > stalePatience {
			return ErrBusy
		}
		return nil
	}
	for _, dir := range left {
		p.log.Warn("removing a cgroup of a dead process", zap.String("group", dir))
		if err := killGroup(p.version, dir, giveUp); err != nil {
			return fmt.Errorf("kill stale group: %w", err)
		}
		if err := removeTree(dir, lastPatience); err != nil {
			return fmt.Errorf("remove stale group: %w", err)
		}
	}
	return nil
}

// Missing lists the limits and measurements that this machine or the delegation of this process's
// group does not offer, with reasons; a sentence each.
func (p *Parent) Missing() []error { return slices.Clone(p.missing) }

// Version is the cgroup version of the groups that hold processes together, 1 or 2.
func (p *Parent) Version() int { return p.version }

// Dir returns the absolute path of the group.
func (p *Parent) Dir() string { return p.dir }

// Slot makes the groups of one slot. The name must not be in use and follows the
// rule of Options.Name.
func (p *Parent) Slot(name string) (_ *Slot, err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	dir := slotDir(p.dir, name)
	s := &Slot{
		dir:      dir,
		controls: map[string]control{},
		handle:   Handle{Version: p.version, Dir: filepath.Join(dir, runName), Home: filepath.Join(p.dir, homeName)},
	}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make slot group: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("make slot group: %w", err), s.Close())
		}
	}()
	v1 := slices.Clone(p.others)
	for controller, c := range p.controls {
		s.controls[controller] = control{c.version, slotDir(c.dir, name)}
		switch {
		case c.version == 1:
			v1 = append(v1, c.dir)
		case slices.Contains(controllers, controller):
			s.handle.Controllers = append(s.handle.Controllers, controller)
		}
	}
	slices.Sort(s.handle.Controllers)
	slices.Sort(v1)
	for _, parent := range slices.Compact(v1) { // co-mounted controllers share it
		run := filepath.Join(slotDir(parent, name), runName)
		s.handle.Threads = append(s.handle.Threads, run)
		if err := errors.Join(makeV1Group(filepath.Dir(run)), makeV1Group(run)); err != nil {
			return nil, err
		}
	}
	for _, c := range s.handle.Controllers {
		if err := writeFile(filepath.Join(s.dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return nil, err
		}
	}
	return s, os.Mkdir(s.handle.Dir, 0o755)
}

// Close removes the group and releases its name. It also removes slots that are not closed, if they
// have no processes; otherwise Close fails with ErrBusy and may be called again.
func (p *Parent) Close() error {
	if p.lock == nil {
		return nil
	}
	left, err := subgroups(p.dir)
	if err != nil {
		return fmt.Errorf("close group: %w", err)
	}
	for _, dir := range slices.Backward(left) {
		if filepath.Base(dir) == asideName && p.home != "" {
			continue // this process is in it
		}
		if err := removeTree(dir, lastPatience); err != nil {
			return fmt.Errorf("close group: %w", err)
		}
	}
	if err := p.takeBack(); err != nil {
		return fmt.Errorf("close group: %w", err)
	}
	v1 := slices.Clone(p.others)
	for _, c := range p.controls {
		if c.version == 1 {
			v1 = append(v1, c.dir)
		}
	}
	for _, dir := range v1 {
		if err := removeTree(dir, lastPatience); err != nil {
			return fmt.Errorf("close group: %w", err)
		}
	}
	if err := removeTree(p.dir, lastPatience); err != nil {
		return fmt.Errorf("close group: %w", err)
	}
	err = p.lock.Close()
	p.lock = nil
	return err
}
