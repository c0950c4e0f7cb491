package serve

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

func TestGCPercent(t *testing.T) {
	const gigabytes = 16 << 30
	for needed, want := range map[uint64]int{
		0: 2000, spareGarbage / 2: 200, spareGarbage: 100, 4 * spareGarbage: 100, 5 * spareGarbage: 80,
		100 * spareGarbage: garbagePercent,
	} {
		if got := gcPercent(needed, gigabytes); got != want {
			t.Errorf("a process that needs %d bytes: %d %%, want %d", needed, got, want)
		}
	}
	if got := gcPercent(20<<20, 80<<20); got != 50 {
		t.Errorf("a process that needs 20 MiB of 80: %d %%, want 50", got)
	}
	if got := gcPercent(0, 0); got != garbagePercent {
		t.Errorf("a process that knows of no memory: %d %%", got)
	}
}

// TestPaceMemory: the bound follows the need at once and then each second, but not for little, and
// not where the environment has one.
func TestPaceMemory(t *testing.T) {
	const other = 12_345 // no process has that
	before := debug.SetGCPercent(other)
	defer debug.SetGCPercent(before)
	get := func() int {
		percent := debug.SetGCPercent(other)
		debug.SetGCPercent(percent)
		return percent
	}
	t.Setenv("GOGC", "70")
	PaceMemory(t.Context(), 16<<30, false)()
	if got := get(); got != other {
		t.Errorf("with GOGC in the environment: %d %%", got)
	}
	t.Setenv("GOGC", "")
	runtime.GC() // what earlier tests needed is no need
	synctest.Test(t, func(t *testing.T) {
		stop := PaceMemory(t.Context(), 16<<30, false)
		synctest.Wait()
		paced := get()
		if want := gcPercent(neededBytes(), 16<<30); paced < want/2 || paced > 2*want {
			t.Errorf("%d %%, want about %d", paced, want)
		}
		debug.SetGCPercent(other)
		time.Sleep(2 * garbageEvery)
		synctest.Wait()
		// The need has not changed, so the world is not stopped again.
		if got := get(); got != other {
			t.Errorf("the bound was set again for the same need: %d %%", got)
		}
		more := make([]byte, 256<<20)
		runtime.GC()
		time.Sleep(2 * garbageEvery)
		synctest.Wait()
		if got := get(); got > 250 {
			t.Errorf("a process that needs %d MiB more: %d %%", len(more)>>20, got)
		}
		runtime.KeepAlive(more)
		stop()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		PaceMemory(ctx, 0, false)()
		if got := get(); got != garbagePercent {
			t.Errorf("a process without memory: %d %%, want %d", got, garbagePercent)
		}
	})
}

// TestPaceRuntime: everything that the programs start ends when they stop it, with and without huge
// pages.
func TestPaceRuntime(t *testing.T) {
	beforePercent, beforeLimit := debug.SetGCPercent(-1), debug.SetMemoryLimit(-1)
	defer func() {
		debug.SetGCPercent(beforePercent)
		debug.SetMemoryLimit(beforeLimit)
	}()
	for _, huge := range []bool{false, true} {
		c := Callers{HugePages: huge}
		stop, err := c.PaceRuntime(t.Context(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		stop()
	}
}
