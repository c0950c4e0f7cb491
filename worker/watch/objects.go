package watch

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/forerunner-build/forerunner/worker/census"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

const (
	// mostLocks of files that a command has take some 14 MB.
	mostLocks = 1 << 16
	// countableLocks are all of the machine that can be attributed: to show as many locks of one
	// file takes the kernel some 32 MB of the worker's memory.
	countableLocks = 1 << 18
	// mostFileSystems may be mounted by a command, or as many as fileSystemsOfSlot allow for each
	// slot, if that is more. A process mounts some 10,000 in a second; the machine has numbers for
	// machineFileSystems.
	mostFileSystems    = 1 << 12
	fileSystemsOfSlot  = 1 << 6
	machineFileSystems = 1 << 20
)

// Objects count kernel objects that all commands of a worker share, and for which no cgroup is
// charged.
type Objects struct {
	gate    census.Gate // for commands
	kinds   []scarceKind
	machine glance[uncharged.Memory]
	crowded glance[bool] // whether any mount namespace has more than mostMounts
	systems fileSystems
}

// fileSystems counts those of the machine again and again.
type fileSystems struct{ highest atomic.Int64 }

// count returns how many there are.
func (s *fileSystems) count() (int, error) {
	n, highest, err := uncharged.FileSystems(int(s.highest.Load()))
	if err == nil {
		s.highest.Store(int64(highest))
	}
	return n, err
}

// A scarceKind is one of them.
type scarceKind struct {
	what string // how many of it a command may have
	*census.Census
}

// New returns the Objects of a worker with slots.
func New(slots int) *Objects {
	systems := max(mostFileSystems, fileSystemsOfSlot*slots)
	o := &Objects{}
	o.kinds = []scarceKind{
		{fmt.Sprintf("the kernel memory of %d file locks", mostLocks), census.New(census.Kind{
			Most: mostLocks, Countable: countableLocks,
			All: func(most int) (int, error) { return uncharged.Locks(mostLocks, most) },
			Of:  uncharged.LocksOf,
			Shown: func(ctx context.Context, all int) int {
				n, _ := uncharged.LocksOf(ctx, uncharged.Everyone(), all)
				return n
			},
		})},
		{fmt.Sprintf("%d mounted file systems", systems), census.New(census.Kind{
			Most: systems, Countable: machineFileSystems,
			All: func(int) (int, error) { return o.systems.count() },
			Of: func(ctx context.Context, pids []int, most int) (int, bool) {
				return uncharged.Held(ctx, pids, most), true
			},
			Shown: func(ctx context.Context, all int) int {
				return uncharged.Mounted(ctx, uncharged.Everyone(), int(o.systems.highest.Load()), all)
			},
		})},
	}
	o.machine.find = uncharged.Machine
	o.crowded.find = func() (bool, error) { return uncharged.Fuller(mostMounts) }
	return o
}

// Begin counts the objects of others. No command may be running.
func (o *Objects) Begin() {
	for _, k := range o.kinds {
		k.Begin()
	}
}

// found is what there was too much of, with an unknown owner.
func (o *Objects) found() *Overuse {
	for _, k := range o.kinds {
		if k.Found() {
			return &Overuse{What: k.what}
		}
	}
	return nil
}

// Enter waits until a command may start. The returned channel is closed when all commands must end
// because of overuse with an unknown owner. Leave follows when the command has ended.
func (o *Objects) Enter(ctx context.Context) (closing <-chan struct{}, err error) {
	return o.gate.Enter(ctx)
}

// Leave is called when a command has ended.
func (o *Objects) Leave() { o.gate.Leave() }

// Settle waits until the kernel has freed what a command left that was stopped for overuse, and has
// left. If there was overuse with an unknown owner, it also counts the objects of others again. All
// commands are stopped for that: Settle waits for their end, and new ones wait for it.
func (o *Objects) Settle(ctx context.Context) {
	if o.found() == nil {
		o.left(ctx)
		return
	}
	o.gate.Alone(ctx, func() {
		o.left(context.WithoutCancel(ctx)) // all commands wait for this, not only the one that may be cancelled
		o.Begin()
	})
}

// left waits while the kernel frees objects of commands that have ended.
func (o *Objects) left(ctx context.Context) {
	for _, k := range o.kinds {
		k.Left(ctx)
	}
}
