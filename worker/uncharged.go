package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

const (
	// firstLook is when it is first seen how much uncharged memory there is; many commands have
	// ended by then.
	firstLook = 10 * time.Millisecond
	// unchargedInterval is how often that is seen, at most. A process can add some 100 MB in that
	// time.
	unchargedInterval = 100 * time.Millisecond
	// looksForLocks is how many checks there are for each that counts file systems and locks:
	// during a count of locks the kernel grants none to any process.
	looksForLocks = 10
	// mostFileSystems may come while a command runs, or as many as fileSystemsOfSlot allow for each
	// slot, if that is more. A process mounts some 10,000 in a second.
	mostFileSystems   = 1 << 12
	fileSystemsOfSlot = 1 << 6
	// unchargedShare bounds the time that this takes: one part in so many.
	unchargedShare = 20
	// mostLocks of files that come while a command runs take some 14 MB.
	mostLocks = 1 << 16
	// mostKernel is the part of a machine's memory, one in so many, that small objects of its
	// kernel may grow by while a command runs and less than such a part is available to anybody.
	mostKernel = 8
	// mostNetlink is how many bytes may wait in netlink sockets. A usual one has room for 200 KiB.
	mostNetlink = 64 << 20
)

// An unchargedWatch sees how much memory of the kernel a command uses that its group is not charged
// for.
type unchargedWatch struct {
	launcher *runner.Launcher
	lately   *lockCount
	network  bool // the command has the machine's
	looks    int  // so far
	// The use of others when the command began. unknown: their locks could not be counted, or are
	// too many to count.
	locks   int
	systems int // of files; 0: nobody knows
	netlink int64
	kernel  int64
	unknown bool
	// count is uncharged.Locks; fileSystems and mounts are the functions of that name.
	count       func(most int, pids []int) (all, own int, err error)
	fileSystems func() (int, error)
	mounts      func(pids []int, most int) int
	mostSystems int
}

// An excess is uncharged memory that is too much. own: it is the command's for certain.
type excess struct {
	what string // and how much of that there can be
	own  bool
}

// A lockCount is how many locks of files there were within the last second. To count them the
// kernel waits for some 20 ms, so that one count is for all commands that begin.
type lockCount struct {
	mu     sync.Mutex
	at     time.Time           // guarded by mu, as all below: when the latest count began
	latest func() (int, error) // returns when that has ended
}

// get returns the latest count, and has count begin one if that is too old.
func (c *lockCount) get(count func(most int, pids []int) (all, own int, err error)) (int, error) {
	c.mu.Lock()
	if c.latest == nil || time.Since(c.at) > time.Second {
		c.at, c.latest = time.Now(), sync.OnceValues(func() (int, error) {
			n, _, err := count(2*mostLocks+1, nil)
			return n, err
		})
	}
	latest := c.latest
	c.mu.Unlock()
	return latest()
}

// watchUncharged calls stop when there is an excess, and returns it. It returns nil when ctx ends.
func (r *run) watchUncharged(ctx context.Context, launcher *runner.Launcher, stop func()) *excess {
	if !r.w.opts.Isolation.Sandboxed {
		return nil // such a command can do all that the worker can
	}
	u := &unchargedWatch{
		launcher: launcher, lately: &r.w.locks, network: !r.a.how.Sandbox.NoNetwork, count: uncharged.Locks,
		fileSystems: uncharged.FileSystems, mounts: uncharged.Mounts,
		mostSystems: max(mostFileSystems, fileSystemsOfSlot*len(r.w.opts.Launchers)),
	}
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		began := time.Now()
		if found := u.look(); found != nil {
			stop()
			return found
		}
		timer.Reset(max(unchargedInterval, unchargedShare*time.Since(began)))
	}
}

// look returns the kind of memory of which the command has too much. Kinds that the kernel does not
// report are skipped.
func (u *unchargedWatch) look() *excess {
	pids := u.launcher.Processes()
	slices.Sort(pids)
	if found := u.lookAtNetlink(pids); found != nil {
		return found
	}
	memory, err := uncharged.Machine()
	if err == nil {
		if found := u.lookAtMachine(memory); found != nil {
			return found
		}
	}
	var found *excess
	if u.looks%looksForLocks == 0 {
		if found = u.lookAtLocks(pids); found == nil {
			found = u.lookAtFileSystems(pids)
		}
	}
	u.looks++
	return found
}

func (u *unchargedWatch) lookAtNetlink(pids []int) *excess {
	of := func() (int64, error) { return uncharged.NetlinkOf(pids) }
	if u.network {
		of = func() (int64, error) { return uncharged.Netlink("") }
	}
	bytes, err := of()
	switch {
	case err != nil:
		return nil
	case u.network && u.looks == 0:
		u.netlink = bytes
	case bytes-u.netlink > mostNetlink:
		return &excess{fmt.Sprintf("%d MiB of kernel memory in netlink sockets", mostNetlink>>20), !u.network}
	}
	return nil
}

// lookAtMachine detects memory that can only be measured for the whole machine, such as lists of
// open folders. It does nothing while there is enough memory, because other programs have such
// objects, too.
func (u *unchargedWatch) lookAtMachine(m uncharged.Memory) *excess {
	part := m.Total / mostKernel
	switch {
	case u.looks == 0:
		u.kernel = m.Kernel
	case m.Available < part && m.Kernel-u.kernel > part:
		return &excess{fmt.Sprintf("%d MiB of kernel memory in small objects", part>>20), false}
	}
	return nil
}

func (u *unchargedWatch) lookAtLocks(pids []int) *excess {
	if u.looks == 0 {
		var err error
		u.locks, err = u.lately.get(u.count)
		u.unknown = err != nil || u.locks > 2*mostLocks
		return nil
	}
	if u.unknown {
		return nil
	}
	all, own, err := u.count(u.locks+2*mostLocks+1, pids)
	if err != nil || all-u.locks <= mostLocks && own <= mostLocks {
		return nil
	}
	return &excess{fmt.Sprintf("the kernel memory of %d file locks", mostLocks), own > mostLocks}
}

// lookAtFileSystems checks the file systems that commands mount in their own namespaces: the
// machine has numbers for about a million.
func (u *unchargedWatch) lookAtFileSystems(pids []int) *excess {
	n, err := u.fileSystems()
	switch {
	case err != nil:
		return nil
	case u.looks == 0:
		u.systems = n
		return nil
	case u.systems == 0 || n-u.systems <= u.mostSystems:
		return nil
	}
	return &excess{fmt.Sprintf("%d mounted file systems", u.mostSystems), u.mounts(pids, u.mostSystems+1) > u.mostSystems}
}

// tooMuch is the error of an action whose command was stopped for an excess. If another command
// that ran at the time may be the cause, a retry makes sense.
func (r *run) tooMuch(e *excess) error {
	if e.own {
		r.w.refusals.add(r.a.digest, time.Now())
		return fault.Errorf(codes.ResourceExhausted, "the command used more than %s, which its memory limit does not count", e.what)
	}
	return fault.Errorf(codes.Unavailable,
		"this command, or another one that ran beside it, used more than %s, which its memory limit does not count", e.what)
}
