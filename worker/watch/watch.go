package watch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/worker/census"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

const (
	// unchargedInterval is how often it is seen how much uncharged memory there is, at most. A process
	// can add some 100 MB in that time.
	unchargedInterval = 100 * time.Millisecond
	// FirstLook is when that is first seen. Most commands have ended by then: a look at each of them
	// took a twentieth of the CPU time of a farm that compiles.
	FirstLook = unchargedInterval
	// scarceInterval is how often file systems and locks are counted: during a count of locks the
	// kernel grants none to any process. It is how often netlink sockets are seen, too. Both come
	// earlier if the kernel's objects have grown by scarceGrowth.
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

// A Watch watches how much kernel memory a command uses that is not charged to its cgroup.
type Watch struct {
	command Command
	objects *Objects
	closing <-chan struct{} // closed when all commands are stopped
	// The use of others before the command began.
	netlink         int64
	kernel          int64 // unknown: 0
	sockets, scarce turn
}

// An Overuse is too much uncharged memory.
type Overuse struct {
	What string // the kind of memory, and its limit
	Own  bool   // the command certainly caused it
}

// A Command is the watched command.
type Command struct {
	// Processes returns its present processes.
	Processes func() []int
	// Network: it uses the machine's network, whose sockets are not its own alone.
	Network bool
}

// Watch returns the Watch of a command that is about to start. closing is the result of Enter.
func (o *Objects) Watch(c Command, closing <-chan struct{}) *Watch {
	w := &Watch{command: c, objects: o, closing: closing}
	if c.Network {
		w.netlink, _ = uncharged.Netlink("")
	}
	memory, _ := o.machine.get()
	w.kernel = memory.Kernel
	return w
}

// Until waits for overuse, calls stop, and returns it. It returns nil when ctx ends. It looks at
// once, and is called FirstLook after the start of the command. Each kind of check has its own
// goroutine, because a command can make some of them slow.
func (w *Watch) Until(ctx context.Context, stop func()) (found *Overuse) {
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer cancel()
	seen := make(chan *Overuse, 3)
	looks.Go(func() { again(ctx, unchargedShare, seen, w.lookAtMemory) })
	looks.Go(func() { again(ctx, unchargedShare, seen, w.lookAtMounts) })
	looks.Go(func() { again(ctx, 0, seen, w.lookAtScarce) })
	select {
	case <-ctx.Done():
		return nil
	case <-w.closing:
		found = w.objects.found()
	case found = <-seen:
	}
	stop()
	return found
}

// again looks again and again, until ctx ends or there is overuse. share bounds the time that this
// takes: one part in so many.
func again(ctx context.Context, share time.Duration, seen chan<- *Overuse, look func(context.Context) *Overuse) {
	timer := time.NewTimer(0)
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
func (w *Watch) lookAtMemory(context.Context) *Overuse {
	memory, err := w.objects.machine.get()
	objects := memory.Kernel + memory.Mapped
	if _, due := w.sockets.due(objects); due {
		w.sockets.taken(objects, 0)
		if found := w.lookAtNetlink(w.command.Processes()); found != nil {
			return found
		}
	}
	if err != nil {
		return nil
	}
	return w.lookAtMachine(memory)
}

// lookAtScarce counts what the kernel has once, if it is time for that.
func (w *Watch) lookAtScarce(ctx context.Context) *Overuse {
	memory, _ := w.objects.machine.get()
	if age, due := w.scarce.due(memory.Kernel); due {
		return w.countScarce(ctx, w.command.Processes, memory.Kernel, age)
	}
	return nil
}

// countScarce counts what the kernel has once, until ctx ends. A Census bounds the time that counts
// of others take.
func (w *Watch) countScarce(ctx context.Context, pids func() []int, kernel int64, age time.Duration) *Overuse {
	began, doubts := time.Now(), false
	for _, k := range w.objects.kinds {
		if verdict := k.Look(ctx, pids, age); verdict != census.Innocent {
			return &Overuse{k.what, verdict == census.Guilty}
		}
		doubts = doubts || k.Doubts()
	}
	rest := unchargedShare * time.Since(began)
	if doubts {
		rest = 0 // or all commands are stopped, though this one shows by then that it is the owner
	}
	w.scarce.taken(kernel, rest)
	return nil
}

func (w *Watch) lookAtNetlink(pids []int) *Overuse {
	of := func() (int64, error) { return uncharged.NetlinkOf(pids) }
	if w.command.Network {
		of = func() (int64, error) { return uncharged.Netlink("") }
	}
	bytes, err := of()
	switch {
	case err != nil:
		return nil
	case bytes-w.netlink > mostNetlink:
		return &Overuse{fmt.Sprintf("%d MiB of kernel memory in netlink sockets", mostNetlink>>20), !w.command.Network}
	}
	w.netlink = min(w.netlink, bytes)
	return nil
}

// lookAtMachine detects memory that can only be measured for the whole machine, such as lists of
// open folders. It does nothing while there is enough memory, because other programs have such
// objects, too.
func (w *Watch) lookAtMachine(m uncharged.Memory) *Overuse {
	part := m.Total / mostKernel
	if w.kernel > 0 && m.Available < part && m.Kernel-w.kernel > part {
		return &Overuse{fmt.Sprintf("%d MiB of kernel memory in small objects", part>>20), false}
	}
	return nil
}
