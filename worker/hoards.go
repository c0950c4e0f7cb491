package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

const (
	// firstLook is when it is first seen what a command has the kernel keep; many have ended by then.
	firstLook = 10 * time.Millisecond
	// hoardInterval is how often it is seen what a command has the kernel keep, at most. A process can add some 100 MB in that time.
	hoardInterval = 100 * time.Millisecond
	// looksForLocks is how many looks there are for each that counts locks: meanwhile the kernel gives none to anybody.
	looksForLocks = 10
	// hoardShare bounds the time that this takes: one part in so many.
	hoardShare = 20
	// mostLocks of files that come while a command runs take some 14 MB.
	mostLocks = 1 << 16
	// mostKernel is the part of a machine's memory, one in so many, that small objects of its kernel may grow by while a command runs
	// and less than such a part is available to anybody.
	mostKernel = 8
	// mostNetlink is how many bytes may wait in netlink sockets. A usual one has room for 200 KiB.
	mostNetlink = 64 << 20
)

// A hoarder sees what a command has the kernel keep that its group is not charged for.
type hoarder struct {
	launcher *runner.Launcher
	lately   *lockCount
	network  bool // the command has the machine's
	looks    int  // so far
	// What others had when the command began. tooMany: so many locks that counting them costs too much.
	locks   int
	netlink int64
	kernel  int64
	tooMany bool
}

// A hoard is too much of something. own: it is the command's for certain.
type hoard struct {
	what string
	most int64
	own  bool
}

// A lockCount is how many locks of files there were within the last second. To count them the kernel waits for some 20 ms, so
// that one count is for all commands that begin.
type lockCount struct {
	mu sync.Mutex
	at time.Time // guarded by mu, as all below
	n  int
}

func (c *lockCount) get() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > time.Second {
		if n, _, err := uncharged.Locks(2*mostLocks+1, nil); err == nil {
			c.n = n
		}
		c.at = time.Now()
	}
	return c.n
}

// watchHoards calls stop when the command has the kernel keep too much, and returns of what. It returns nil when ctx ends.
func (r *run) watchHoards(ctx context.Context, launcher *runner.Launcher, stop func()) *hoard {
	if !r.w.opts.Isolation.Sandboxed {
		return nil // such a command can do all that the worker can
	}
	h := &hoarder{launcher: launcher, lately: &r.w.locks, network: !r.a.how.Sandbox.NoNetwork}
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		began := time.Now()
		if found := h.look(); found != nil {
			stop()
			return found
		}
		timer.Reset(max(hoardInterval, hoardShare*time.Since(began)))
	}
}

// look returns what the command has too much of. What the kernel does not tell is not looked at.
func (h *hoarder) look() *hoard {
	pids := h.launcher.Processes()
	slices.Sort(pids)
	if found := h.lookAtNetlink(pids); found != nil {
		return found
	}
	memory, err := uncharged.Machine()
	if err == nil {
		if found := h.lookAtMachine(memory); found != nil {
			return found
		}
	}
	var found *hoard
	if h.looks%looksForLocks == 0 {
		found = h.lookAtLocks(pids)
	}
	h.looks++
	return found
}

func (h *hoarder) lookAtNetlink(pids []int) *hoard {
	of := func() (int64, error) { return uncharged.NetlinkOf(pids) }
	if h.network {
		of = func() (int64, error) { return uncharged.Netlink("") }
	}
	bytes, err := of()
	switch {
	case err != nil:
		return nil
	case h.network && h.looks == 0:
		h.netlink = bytes
	case bytes-h.netlink > mostNetlink:
		return &hoard{"bytes in netlink sockets", mostNetlink, !h.network}
	}
	return nil
}

// lookAtMachine sees what there is no better way to see, such as lists of folders that somebody has open. It does nothing while there
// is enough memory: others on the machine have such objects, too.
func (h *hoarder) lookAtMachine(m uncharged.Memory) *hoard {
	part := m.Total / mostKernel
	switch {
	case h.looks == 0:
		h.kernel = m.Kernel
	case m.Available < part && m.Kernel-h.kernel > part:
		return &hoard{"bytes in small objects", part, false}
	}
	return nil
}

func (h *hoarder) lookAtLocks(pids []int) *hoard {
	if h.looks == 0 {
		h.locks = h.lately.get()
		h.tooMany = h.locks > 2*mostLocks
		return nil
	}
	if h.tooMany {
		return nil
	}
	all, own, err := uncharged.Locks(h.locks+mostLocks+1, pids)
	switch {
	case err != nil:
		return nil
	case own > mostLocks:
		return &hoard{"locks of files", mostLocks, true}
	case all-h.locks > mostLocks:
		return &hoard{"locks of files", mostLocks, own > mostLocks/2}
	}
	return nil
}

// tooMuch is the error of an action whose command was stopped for a hoard. If that may be of another command that ran at the time, it is
// worth another try.
func (r *run) tooMuch(h *hoard) error {
	if h.own {
		r.w.refusals.add(r.a.digest, time.Now())
		return fault.Errorf(codes.ResourceExhausted, "the command had the kernel keep more than %d %s, which nothing is charged for", h.most, h.what)
	}
	return fault.Errorf(codes.Unavailable,
		"this command, or another one that ran beside it, had the kernel keep more than %d %s, which nothing is charged for", h.most, h.what)
}
