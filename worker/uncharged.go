package worker

import (
	"context"
	"fmt"
	"sync"
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
	// longestScarce is how long there is no count because the last one took long, unless they grow.
	longestScarce = 10 * time.Second
	scarceGrowth  = 8 << 20
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
	scarce   *scarceObjects
	closing  <-chan struct{} // closed when all commands are stopped
	network  bool            // the command has the machine's
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
func (r *run) newUnchargedWatch(launcher *runner.Launcher, closing <-chan struct{}) *unchargedWatch {
	if !r.w.opts.Isolation.Sandboxed {
		return nil
	}
	u := &unchargedWatch{
		launcher: launcher, scarce: r.w.scarce, closing: closing, network: !r.a.how.Sandbox.NoNetwork,
	}
	if u.network {
		u.netlink, _ = uncharged.Netlink("")
	}
	memory, _ := uncharged.Machine()
	u.kernel = memory.Kernel
	return u
}

// until calls stop when there is an excess, and returns it. It returns nil when ctx ends. Each kind
// of look has a goroutine: a command can make some of them long.
func (u *unchargedWatch) until(ctx context.Context, stop func()) (found *excess) {
	if u == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer cancel()
	seen := make(chan *excess, 3)
	looks.Go(func() { again(ctx, unchargedShare, seen, u.lookAtMemory) })
	looks.Go(func() { again(ctx, unchargedShare, seen, u.lookAtMounts) })
	looks.Go(func() { again(ctx, 0, seen, u.lookAtScarce) })
	select {
	case <-ctx.Done():
		return nil
	case <-u.closing:
		found = u.scarce.found()
	case found = <-seen:
	}
	stop()
	return found
}

// again looks again and again, until ctx ends or there is an excess. share bounds the time that this
// takes: one part in so many.
func again(ctx context.Context, share time.Duration, seen chan<- *excess, look func(context.Context) *excess) {
	timer := time.NewTimer(firstLook)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		if found := look(ctx); found != nil {
			seen <- found
			return
		}
		timer.Reset(max(unchargedInterval, share*time.Since(began)))
	}
}

// lookAtMemory returns the kind of memory of which the command has too much. Kinds that the kernel
// does not report are skipped.
func (u *unchargedWatch) lookAtMemory(context.Context) *excess {
	if found := u.lookAtNetlink(u.launcher.Processes()); found != nil {
		return found
	}
	memory, err := uncharged.Machine()
	if err != nil {
		return nil
	}
	return u.lookAtMachine(memory)
}

// lookAtMounts may wait for those who mount.
func (u *unchargedWatch) lookAtMounts(context.Context) *excess {
	return tooManyMounts(u.launcher.Processes())
}

// lookAtScarce counts what the kernel has once, if it is time for that.
func (u *unchargedWatch) lookAtScarce(ctx context.Context) *excess {
	memory, _ := uncharged.Machine()
	if age, due := u.due(memory.Kernel); due {
		return u.countScarce(ctx, u.launcher.Processes, memory.Kernel, age)
	}
	return nil
}

// due reports whether it is time to count what the kernel has once, and how old a count may be.
func (u *unchargedWatch) due(kernel int64) (age time.Duration, due bool) {
	switch now := time.Now(); {
	case now.Sub(u.counted) >= scarceInterval:
		return scarceInterval, true
	case kernel-u.kernelCounted > scarceGrowth && !now.Before(u.early):
		return unchargedInterval, true
	}
	return 0, false
}

// countScarce counts what the kernel has once, until ctx ends. A Census bounds the time that counts
// of others take.
func (u *unchargedWatch) countScarce(ctx context.Context, pids func() []int, kernel int64, age time.Duration) *excess {
	began := time.Now()
	for _, k := range u.scarce.kinds {
		if verdict := k.Look(ctx, pids, age); verdict != census.Innocent {
			return &excess{k.what, verdict == census.Guilty}
		}
	}
	now := time.Now()
	rest := unchargedShare * now.Sub(began)
	u.counted, u.early = now.Add(max(min(rest, longestScarce)-scarceInterval, 0)), now.Add(min(rest, scarceInterval))
	u.kernelCounted = kernel
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
