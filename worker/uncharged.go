package worker

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/worker/census"
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
	// scarceInterval is how often file systems and locks are counted: during a count of locks the
	// kernel grants none to any process. They are counted earlier if the machine's small objects
	// have grown by scarceGrowth.
	scarceInterval = time.Second
	scarceGrowth   = 8 << 20
	// unchargedShare bounds the time that this takes: one part in so many.
	unchargedShare = 20
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
	scarce   []scarceKind
	network  bool // the command has the machine's
	// The use of others before the command began.
	netlink int64
	kernel  int64 // unknown: 0
	// When file systems and locks were counted, when that may be early, and the small objects then.
	counted, early time.Time
	kernelCounted  int64
}

// An excess is uncharged memory that is too much. own: it is the command's for certain.
type excess struct {
	what string // and how much of that there can be
	own  bool
}

// newUnchargedWatch returns the watch of a command that is about to begin; nil if it can do all
// that the worker can.
func (r *run) newUnchargedWatch(launcher *runner.Launcher) *unchargedWatch {
	if !r.w.opts.Isolation.Sandboxed {
		return nil
	}
	u := &unchargedWatch{launcher: launcher, scarce: r.w.scarce.kinds, network: !r.a.how.Sandbox.NoNetwork}
	if u.network {
		u.netlink, _ = uncharged.Netlink("")
	}
	memory, _ := uncharged.Machine()
	u.kernel = memory.Kernel
	return u
}

// until calls stop when there is an excess, and returns it. It returns nil when ctx ends.
func (u *unchargedWatch) until(ctx context.Context, stop func()) *excess {
	if u == nil {
		return nil
	}
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		pids, began := u.launcher.Processes(), time.Now()
		found, kernel := u.look(pids)
		pause := max(unchargedInterval, unchargedShare*time.Since(began))
		if found == nil {
			found = u.lookAtScarce(pids, kernel)
		}
		if found != nil {
			stop()
			return found
		}
		timer.Reset(pause)
	}
}

// look returns the kind of memory of which the command has too much, and the small objects of the
// kernel. Kinds that the kernel does not report are skipped.
func (u *unchargedWatch) look(pids []int) (found *excess, kernel int64) {
	if found := tooManyMounts(pids); found != nil {
		return found, 0
	}
	if found := u.lookAtNetlink(pids); found != nil {
		return found, 0
	}
	memory, err := uncharged.Machine()
	if err != nil {
		return nil, 0
	}
	return u.lookAtMachine(memory), memory.Kernel
}

// lookAtScarce counts what the kernel has once, if it is time for that. A Census bounds the time
// that counts of others take.
func (u *unchargedWatch) lookAtScarce(pids []int, kernel int64) *excess {
	now, age := time.Now(), scarceInterval
	switch {
	case now.Sub(u.counted) >= scarceInterval:
	case kernel-u.kernelCounted > scarceGrowth && !now.Before(u.early):
		age = unchargedInterval
	default:
		return nil
	}
	u.counted, u.kernelCounted = now, kernel
	for _, k := range u.scarce {
		if verdict := k.Look(pids, age); verdict != census.Innocent {
			return &excess{k.what, verdict == census.Guilty}
		}
	}
	took := time.Since(now)
	u.counted, u.early = now.Add(took), now.Add(took+min(unchargedShare*took, scarceInterval))
	return nil
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
	case bytes-u.netlink > mostNetlink:
		return &excess{fmt.Sprintf("%d MiB of kernel memory in netlink sockets", mostNetlink>>20), !u.network}
	}
	u.netlink = min(u.netlink, bytes)
	return nil
}

// lookAtMachine detects memory that can only be measured for the whole machine, such as lists of
// open folders. It does nothing while there is enough memory, because other programs have such
// objects, too.
func (u *unchargedWatch) lookAtMachine(m uncharged.Memory) *excess {
	part := m.Total / mostKernel
	if u.kernel > 0 && m.Available < part && m.Kernel-u.kernel > part {
		return &excess{fmt.Sprintf("%d MiB of kernel memory in small objects", part>>20), false}
	}
	return nil
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
