package farm

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
)

const (
	// endPatience is how long a launcher and its cgroup may take to end when they are replaced or
	// the worker ends. After that the kernel holds them.
	endPatience = time.Second
	// A group that a process was left in is tried to be removed after firstRetry, and then
	// each time after twice as long, up to lastRetry.
	firstRetry, lastRetry = time.Second, 30 * time.Second
)

func (s *Started) launch(ctx context.Context, i int) (*runner.Launcher, error) {
	return runner.StartLauncher(ctx, runner.LauncherOptions{
		Cgroup: s.slots[i], Sandbox: s.isolation.sandbox, Logger: s.w.Logger, Form: s.w.LogForm,
	})
}

// relaunch replaces a launcher that no longer works. Only the holder of slot i calls it with i, and
// Close comes after all positions have ended. A process that the kernel holds keeps its cgroup, and
// the slot gets another.
func (s *Started) relaunch(ctx context.Context, i int) (*runner.Launcher, error) {
	closing, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	err := s.launcher[i].Close(closing)
	if err != nil && !errors.Is(err, runner.ErrUnkillable) {
		s.w.Logger.Warn("launcher did not close", zap.Error(err))
	}
	if errors.Is(err, runner.ErrUnkillable) || !empty(closing, s.slots[i]) {
		if err := s.replaceSlot(ctx, i); err != nil {
			return nil, err
		}
	}
	launcher, err := s.launch(ctx, i)
	if err != nil {
		return nil, err
	}
	s.launcher[i] = launcher
	return launcher, nil
}

// empty reports whether the next command can be started in a slot's group: nothing is in it,
// after it was killed.
func empty(ctx context.Context, slot *cgroup.Slot) bool {
	return slot == nil || slot.Kill(ctx) == nil
}

// replaceSlot gives slot i another cgroup, and leaves the old one with its launcher.
func (s *Started) replaceSlot(ctx context.Context, i int) error {
	s.replaced++
	slot, err := s.plan.slot(i, s.replaced)
	if err != nil {
		return err
	}
	s.retired.add(ctx, s.launcher[i], s.slots[i])
	s.slots[i] = slot
	return nil
}

// Close ends the guard and the launchers, and removes their cgroups. If a process cannot be killed,
// its cgroup is left to the next worker with this data folder.
func (s *Started) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
	defer cancel()
	left := s.retired.close()
	errs := []error{s.isolation.close()}
	if s.data != nil {
		errs = append(errs, s.data.Close())
	}
	errs = append(errs, s.guard.Close())
	for _, l := range s.launcher {
		if err := l.Close(ctx); errors.Is(err, runner.ErrUnkillable) {
			s.w.Logger.Warn("cannot end a launcher: the kernel holds a process of it", zap.Error(err))
			left++
		} else {
			errs = append(errs, err)
		}
	}
	if left > 0 {
		return errors.Join(errs...)
	}
	for _, slot := range s.slots {
		if slot != nil {
			errs = append(errs, slot.Close())
		}
	}
	if s.plan.parent != nil {
		errs = append(errs, s.plan.parent.Close())
	}
	return errors.Join(errs...)
}

// retired are launchers that were replaced while the kernel held a process of theirs. Each has a
// goroutine that removes its remains once the kernel has released it, until close.
type retired struct {
	log  *zap.Logger
	stop chan struct{}
	wg   *sync.WaitGroup

	mu   *sync.Mutex
	left map[*runner.Launcher]bool // guarded by mu
}

func newRetired(log *zap.Logger) retired {
	return retired{
		log: log, stop: make(chan struct{}), wg: &sync.WaitGroup{},
		mu: &sync.Mutex{}, left: map[*runner.Launcher]bool{},
	}
}

func (r *retired) add(ctx context.Context, l *runner.Launcher, slot *cgroup.Slot) {
	where := ""
	if slot != nil {
		where = slot.Handle().Dir
	}
	r.log.Warn("the kernel holds a process of a launcher; its slot gets another cgroup", zap.String("group", where))
	r.mu.Lock()
	r.left[l] = true
	r.mu.Unlock()
	r.wg.Go(func() {
		if err := r.bury(context.WithoutCancel(ctx), l, slot); err != nil {
			r.log.Warn("the next worker with this data folder cleans up", zap.String("group", where), zap.Error(err))
			return
		}
		r.mu.Lock()
		delete(r.left, l)
		r.mu.Unlock()
		r.log.Info("the kernel let go of a launcher's processes", zap.String("group", where))
	})
}

// bury waits for the launcher and removes its group, or returns why it is still there.
func (r *retired) bury(ctx context.Context, l *runner.Launcher, slot *cgroup.Slot) error {
	select {
	case <-l.Gone():
	case <-r.stop:
		return runner.ErrUnkillable
	}
	err := l.Close(ctx) // at once, as it is gone
	if slot == nil {
		return err
	}
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		if err := slot.Close(); !errors.Is(err, cgroup.ErrBusy) {
			return err
		}
		_ = slot.Strike() // a frozen process gets it when it thaws
		select {
		case <-time.After(pause):
		case <-r.stop:
			return cgroup.ErrBusy
		}
	}
}

// close stops waiting and returns of how many launchers something is left.
func (r *retired) close() int {
	close(r.stop)
	r.wg.Wait()
	return r.count()
}

func (r *retired) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.left)
}
