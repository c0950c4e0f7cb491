package serve

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
)

// TestSlackenMonitor sets the slack of the thread that watches a busy runtime.
func TestSlackenMonitor(t *testing.T) {
	thread, err := monitorThread()
	if err != nil {
		t.Fatal(err)
	}
	woken := func() int {
		status, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", thread))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(status), "\nvoluntary_ctxt_switches:")
		line, _, _ := strings.Cut(rest, "\n")
		n, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	var done atomic.Bool
	defer done.Store(true)
	go func() {
		for !done.Load() { // the monitor looks for goroutines that never wait
		}
	}()
	before := woken()
	for end := time.Now().Add(time.Minute); woken() < before+20; {
		if time.Now().After(end) {
			t.Fatalf("thread %d does not watch", thread)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("to set the slack of another thread needs root")
	}
	file := fmt.Sprintf("/proc/%d/timerslack_ns", thread)
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, was, 0); err != nil {
			t.Error(err)
		}
	}()
	for _, slack := range []time.Duration{300 * time.Microsecond, 0} { // 0 leaves it
		slackenMonitor(slack, zap.NewNop())
		if got, err := os.ReadFile(file); err != nil || strings.TrimSpace(string(got)) != "300000" {
			t.Errorf("slack %v: it is %s ns, %v", slack, got, err)
		}
	}
}

// TestSpareProcessors adds to what the runtime has chosen, however often, unless somebody else has
// chosen.
func TestSpareProcessors(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, spare := range []int{3, 1, 1, 0} {
		spareProcessors(spare)
		if got := runtime.GOMAXPROCS(0); got != runtimeProcessors+spare {
			t.Errorf("%d to spare: %d, the runtime has chosen %d", spare, got, runtimeProcessors)
		}
	}
	t.Setenv("GOMAXPROCS", "7")
	spareProcessors(5)
	if got := runtime.GOMAXPROCS(0); got != runtimeProcessors {
		t.Errorf("with GOMAXPROCS in the environment: %d, want it left at %d", got, runtimeProcessors)
	}
}
