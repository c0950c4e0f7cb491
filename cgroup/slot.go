package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Handle names a slot's group in plain data, so that another process (the launcher)
// can attach to it.
type Handle struct {
	Version int
	Dir     string // the slot's group with the commands
	Home    string // the group with the processes that start commands in Dir
	// Threads are the groups of v1 hierarchies for the thread that forks, and so for the commands.
	Threads []string
	// Controllers of v2 are enabled in Dir, which repeats the slot's limits: programs look for them
	// in their own group.
	Controllers []string
	Limits      Limits
}

// Slot is the group of one slot: empty between commands; during a command it holds all its
// processes. In each hierarchy it is a group with the limits and counters, and commands are in a
// group inside it: commands can only see and change cgroups below the limits.
type Slot struct {
	handle Handle
	// dir is around handle.Dir, which comes and goes, as the folders of controls are around
	// handle.Threads. Empty in an attached Slot, which has no controls either.
	dir      string
	controls map[string]control

	// worn is set once the group was killed: a v2 group that was killed is not fit
	// to start anything (see Start).
	worn atomic.Bool
}

// ErrStranded means that a thread could not leave the slot's group again: the next
// Kill would freeze it, so the process should end.
var ErrStranded = errors.New("thread stranded in the slot's group")

// Attach finds the group that another process made with Parent.Slot. Only that
// process calls Close.
func Attach(handle Handle) *Slot {
	s := &Slot{handle: handle}
	s.worn.Store(true) // its earlier state is unknown
	return s
}

// Handle identifies the slot for Attach in another process.
func (s *Slot) Handle() Handle { return s.handle }

// SettleThread moves the calling thread into the slot's groups of v1 hierarchies, whose limits
// apply to its children; under v2 it does nothing. A thread that calls Start must call it once,
// before, and must be locked to its goroutine forever. Its memory stays charged to its process, and
// it counts as one of the slot's Limits.Pids. It must not be the first thread of its process,
// because the kernel takes that for the whole process: a command out of memory could make the
// kernel kill it.
//
// The thread stays there because a round trip through four groups costs 74 µs.
func (s *Slot) SettleThread() error {
	for _, group := range s.handle.Threads {
		if err := moveThread(group); err != nil {
			return fmt.Errorf("settle thread in slot group: %w", err)
		}
	}
	return nil
}

// Hold renews the group that commands are in, and keeps the slot working for this process when its
// folders are no longer at their paths. It must come before Settle, and lasts until the process
// ends.
func (s *Slot) Hold() error {
	if err := s.replace(); err != nil {
		return fmt.Errorf("replace slot group: %w", err)
	}
	held := s.handle
	held.Threads = slices.Clone(held.Threads)
	for _, dir := range append([]*string{&held.Home}, pointers(held.Threads)...) {
		var err error
		if *dir, err = hold(*dir); err != nil {
			return err
		}
	}
	around, err := hold(filepath.Dir(held.Dir)) // Dir itself may be replaced
	if err != nil {
		return err
	}
	held.Dir = filepath.Join(around, filepath.Base(held.Dir))
	s.handle = held
	return nil
}

func pointers(list []string) []*string {
	to := make([]*string, len(list))
	for i := range list {
		to[i] = &list[i]
	}
	return to
}

// hold returns a path of the folder that holds as long as the process lives.
func hold(dir string) (string, error) {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "hold slot group", Path: dir, Err: err}
	}
	return fmt.Sprintf("/proc/self/fd/%d", fd), nil
}

// Settle moves the calling process to the group of the starters of commands. It must be called
// before the first Start.
func (s *Slot) Settle() error {
	if err := enter(s.handle.Home, os.Getpid()); err != nil {
		return fmt.Errorf("settle beside the slot groups: %w", err)
	}
	return nil
}

func enter(group string, pid int) error {
	return writeFile(filepath.Join(group, "cgroup.procs"), strconv.Itoa(pid))
}

// Start calls start so that the forked process is in the group from birth, before it runs an
// instruction. On v2, start gets a descriptor for SysProcAttr (UseCgroupFD, CgroupFD). On v1 it
// gets -1 and must fork on the calling thread, which is inside the group while start runs: no Kill
// of the same slot may run at the same time. Errors of start are returned unchanged.
//
// A v2 group that was killed is first replaced by a new one, which must not contain old processes:
// kernels with a kill sequence (seen on Linux 6.18) compare the sequence of the forking process's
// group with that of the target, and kill a new process at birth if its group was killed more
// often. For the same reason Settle is necessary: a service manager may have killed the worker's
// original group before.
func (s *Slot) Start(start func(cgroupFD int) error) error {
	if s.worn.Load() {
		if err := s.replace(); err != nil {
			return fmt.Errorf("replace slot group: %w", err)
		}
	}
	if s.handle.Version == 2 {
		return s.startInto(start)
	}
	return s.startFrom(start)
}

func (s *Slot) startInto(start func(int) error) error {
	// Not os.Open, which asks the kernel whether it can wait for it.
	dir, err := unix.Open(s.handle.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open slot group: %w", err)
	}
	defer func() { _ = unix.Close(dir) }()
	return start(dir)
}

func (s *Slot) startFrom(start func(int) error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := moveThread(s.handle.Dir); err != nil {
		return fmt.Errorf("enter slot group: %w", err)
	}
	err := start(-1)
	if back := moveThread(s.handle.Home); back != nil {
		return errors.Join(err, fmt.Errorf("%w: %w", ErrStranded, back))
	}
	return err
}

// moveThread takes the calling thread alone into a v1 group; "0" means the writer.
func moveThread(group string) error {
	return writeFile(filepath.Join(group, "tasks"), "0")
}

func (s *Slot) replace() error {
	if err := removeTree(s.handle.Dir, lastPatience); err != nil {
		return err
	}
	if err := os.Mkdir(s.handle.Dir, 0o755); err != nil {
		return err
	}
	for _, c := range s.handle.Controllers {
		if err := s.handle.Limits.write(c, control{2, s.handle.Dir}); err != nil {
			return err
		}
	}
	s.worn.Store(false)
	return nil
}

// Add moves a running process with all its threads into the group; children that
// it already has stay where they are.
func (s *Slot) Add(pid int) error {
	if err := enter(s.handle.Dir, pid); err != nil {
		return fmt.Errorf("add process %d to slot group: %w", pid, err)
	}
	return nil
}

// Pids lists the processes in the group and in groups below it, in no order.
// Zombies are not listed.
func (s *Slot) Pids() ([]int, error) {
	pids, err := pidsBelow(s.handle.Dir)
	if err != nil {
		return nil, fmt.Errorf("list slot group: %w", err)
	}
	return pids, nil
}

// Strike sends SIGKILL to everything in the group once and does not wait. On v2 no
// process escapes by forking; on v1 one may if the group cannot be frozen in time
// (a process in uninterruptible sleep), so call it again until Pids is empty.
func (s *Slot) Strike() error {
	s.worn.Store(true)
	if err := strike(s.handle.Version, s.handle.Dir); err != nil {
		return fmt.Errorf("kill slot group: %w", err)
	}
	return nil
}

// Kill ends all processes in the group and returns when none is left, or with an error that wraps
// ctx's. A process in uninterruptible sleep ends when the kernel releases it.
func (s *Slot) Kill(ctx context.Context) error {
	s.worn.Store(true)
	if err := killGroup(s.handle.Version, s.handle.Dir, ctx.Err); err != nil {
		return fmt.Errorf("kill slot group: %w", err)
	}
	return nil
}

// Close removes the group, and groups that commands made below it. It kills nothing: with processes
// inside, it fails with ErrBusy and may be called again.
func (s *Slot) Close() error {
	dirs := []string{s.dir}
	for _, run := range s.handle.Threads {
		dirs = append(dirs, filepath.Dir(run))
	}
	for _, dir := range dirs {
		if err := removeTree(dir, lastPatience); err != nil {
			return fmt.Errorf("close slot group: %w", err)
		}
	}
	return nil
}
