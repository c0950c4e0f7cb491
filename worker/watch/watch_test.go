package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/worker/census"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

// TestMemoryOfTheKernel: a command is stopped when the kernel's objects have grown while it ran,
// and there is little memory left.
func TestMemoryOfTheKernel(t *testing.T) {
	const all = 80 << 30
	for name, c := range map[string]struct {
		before, now uncharged.Memory
		stops       bool
	}{
		"they have grown":                {uncharged.Memory{Total: all, Kernel: 1 << 30}, uncharged.Memory{Total: all, Available: 9 << 30, Kernel: 12 << 30}, true},
		"there is memory":                {uncharged.Memory{Total: all, Kernel: 1 << 30}, uncharged.Memory{Total: all, Available: 11 << 30, Kernel: 12 << 30}, false},
		"they were there before":         {uncharged.Memory{Total: all, Kernel: 9 << 30}, uncharged.Memory{Total: all, Available: 9 << 30, Kernel: 12 << 30}, false},
		"there was little memory before": {uncharged.Memory{Total: all, Available: 1, Kernel: 20 << 30}, uncharged.Memory{Total: all, Available: 1, Kernel: 20 << 30}, false},
	} {
		w := &Watch{kernel: c.before.Kernel}
		if found := w.lookAtMachine(c.before); found != nil {
			t.Errorf("%s: the first look finds %+v", name, found)
		}
		if found := w.lookAtMachine(c.now); (found != nil) != c.stops || c.stops && found.Own {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestWhenToCount: locks and file systems are counted once a second, and earlier if the kernel's
// small objects grow.
func TestWhenToCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		w := &Watch{objects: &Objects{kinds: []scarceKind{{"objects", census.New(census.Kind{
			Most: 1, Countable: 1, All: func(int) (int, error) { counts++; return 0, nil },
		})}}}}
		for i, step := range []struct {
			wait   time.Duration
			kernel int64
			counts int
		}{
			{0, 50 << 20, 1},
			{100 * time.Millisecond, 50 << 20, 1},
			{100 * time.Millisecond, 58 << 20, 1},
			{900 * time.Millisecond, 58 << 20, 2},
			{100 * time.Millisecond, 67 << 20, 3},
		} {
			time.Sleep(step.wait)
			if age, due := w.scarce.due(step.kernel); due {
				if found := w.countScarce(t.Context(), nil, step.kernel, age); found != nil {
					t.Errorf("look %d: %+v", i, found)
				}
			}
			if counts != step.counts {
				t.Errorf("look %d: %d counts, want %d", i, counts, step.counts)
			}
		}
	})
}

// TestAllAreStopped: when there is too much and nobody knows whose it is, the watch of a command
// stops it without a look of its own, which its processes can make long.
func TestAllAreStopped(t *testing.T) {
	c := census.New(census.Kind{Most: 1, Countable: 1, All: func(int) (int, error) { return 3, nil }})
	if got := c.Look(t.Context(), nil, time.Second); got != census.Unknown {
		t.Fatalf("verdict %d", got)
	}
	s := New(1)
	s.kinds = []scarceKind{{"objects", c}}
	closing, err := s.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Leave()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.Settle(ended)
	stopped := false
	w := s.Watch(Command{Processes: func() []int { return nil }}, closing)
	if found := w.Until(t.Context(), func() { stopped = true }); !stopped || found == nil || found.Own || found.What != "objects" {
		t.Errorf("stopped: %v, %+v", stopped, found)
	}
}

// TestSettleOfCancelled: whoever wanted the command that settles, what stopped ones left is not taken for
// objects of others.
func TestSettleOfCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		freed := func() int { return 200 * int(time.Since(began).Seconds()) }
		c := census.New(census.Kind{Most: 80, Countable: 500, All: func(int) (int, error) { return max(1000-freed(), 0), nil }})
		if got := c.Look(t.Context(), nil, time.Second); got != census.Unknown {
			t.Fatalf("verdict %d", got)
		}
		s := New(1)
		s.kinds = []scarceKind{{"objects", c}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if s.Settle(ctx); freed() < 1000 {
			t.Errorf("the objects of others are counted when %d of 1000 are freed", freed())
		}
	})
}

// TestDoubts: a command that is slow to look at is looked at again before all are stopped for hidden
// objects, which it shows by then.
func TestDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const owner = 1
		looks := 0
		c := census.New(census.Kind{
			Most: 100, Countable: 1000, All: func(int) (int, error) { return 900, nil },
			Of: func(_ context.Context, pids []int, _ int) (int, bool) {
				if pids[0] != owner {
					return 0, true
				}
				time.Sleep(300 * time.Millisecond)
				looks++
				return 900 * (looks - 1), true
			},
			Shown: func(context.Context, int) int { return 0 },
		})
		watch := func(pid int) (found *Overuse) {
			w := &Watch{objects: &Objects{kinds: []scarceKind{{"objects", c}}}}
			for found == nil {
				time.Sleep(unchargedInterval)
				if age, due := w.scarce.due(0); due {
					found = w.countScarce(t.Context(), func() []int { return []int{pid} }, 0, age)
				}
			}
			return found
		}
		var beside sync.WaitGroup
		defer beside.Wait()
		beside.Go(func() { watch(owner + 1) })
		if found := watch(owner); !found.Own || c.Found() {
			t.Errorf("%+v after %d looks, all are stopped: %v", found, looks, c.Found())
		}
	})
}

// TestSettle: what a command left, and the kernel frees slowly, is not taken for objects of others,
// beside which the next one could hide its own.
func TestSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var has atomic.Int64
		c := census.New(census.Kind{
			Most: 100, Countable: 1000, All: func(int) (int, error) { return int(has.Load()), nil },
			Of:    func(context.Context, []int, int) (int, bool) { return 0, true },
			Shown: func(context.Context, int) int { return 0 },
		})
		c.Begin()
		s := New(1)
		s.kinds = []scarceKind{{"objects", c}}
		hidden := func() bool {
			for range 5 {
				if c.Look(t.Context(), func() []int { return nil }, time.Second) == census.Unknown {
					return true
				}
				time.Sleep(time.Second + 1)
			}
			return false
		}
		if has.Store(900); !hidden() {
			t.Fatal("hidden objects were not found")
		}
		freeing := make(chan struct{})
		go func() {
			defer close(freeing)
			for has.Load() > 0 {
				time.Sleep(500 * time.Millisecond)
				has.Add(-100)
			}
		}()
		s.Settle(t.Context())
		<-freeing
		if has.Store(300); !hidden() {
			t.Error("the hidden objects of the next command were not found")
		}
	})
}

// TestQuietMachine: while the kernel's objects do not grow, nobody asks for a command's processes,
// whose number makes looks at them long, more than once a second.
func TestQuietMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, glances, looks atomic.Int64
		var kernel atomic.Int64
		var crowded atomic.Bool
		o := &Objects{}
		o.machine.find = func() (uncharged.Memory, error) {
			glances.Add(1)
			return uncharged.Memory{Total: 1 << 40, Available: 1 << 39, Kernel: 1 << 30, Mapped: kernel.Load()}, nil
		}
		o.crowded.find = func() (bool, error) { looks.Add(1); return crowded.Load(), nil }
		ctx, cancel := context.WithCancel(t.Context())
		processes := func() []int { asked.Add(1); return nil }
		var watches sync.WaitGroup
		for range 4 {
			watches.Go(func() { o.Watch(Command{Processes: processes}, nil).Until(ctx, func() {}) })
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := asked.Swap(0); n < 4*9 || n > 4*11 {
			t.Errorf("processes of four commands were asked for %d times in ten quiet seconds", n)
		}
		if g, l := glances.Swap(0), looks.Swap(0); g > 102 || l > 102 {
			t.Errorf("four commands took %d glances at the memory and %d at the namespaces in ten seconds", g, l)
		}
		kernel.Add(scarceGrowth + 1)
		time.Sleep(unchargedInterval)
		synctest.Wait()
		if n := asked.Swap(0); n < 4 {
			t.Errorf("sockets of four commands were looked at %d times when the kernel's objects grew", n)
		}
		crowded.Store(true)
		time.Sleep(unchargedInterval)
		synctest.Wait()
		if n := asked.Load(); n < 4 {
			t.Errorf("namespaces of four commands were looked at %d times when one was full", n)
		}
		cancel()
		watches.Wait()
	})
}

// TestGrowthBehindAFall: what others free hides no growth.
func TestGrowthBehindAFall(t *testing.T) {
	var sockets turn
	sockets.taken(2<<30, 0)
	if _, due := sockets.due(1 << 30); due {
		t.Error("a fall is looked at")
	}
	if _, due := sockets.due(1<<30 + 2*scarceGrowth); !due {
		t.Error("the growth after a fall is not looked at")
	}
}
