package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/worker/census"
)

// A crowd is the commands of a worker, by name, with objects that nobody sees.
type crowd struct {
	*Objects
	mu       sync.Mutex
	objects  map[string]int // guarded by mu, as all below
	stopped  []string       // by their watches
	convicts []string       // of these
	ends     map[string][]func()
}

func newCrowd() *crowd {
	c := &crowd{objects: map[string]int{}, ends: map[string][]func(){}, Objects: New(1)}
	c.Objects.kinds = []*scarceKind{{what: "objects", Census: census.New(census.Kind{
		Most: 100, Countable: 10_000,
		All: func(int) (n int, err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, has := range c.objects {
				n += has
			}
			return n, nil
		},
		Shown: func(context.Context, int) int { return 0 },
	})}}
	c.kinds[0].of = func(_ context.Context, command Command, _ int) (int, bool) { return len(command.Processes()), true }
	c.kinds[0].perhaps = func(_ context.Context, command Command) int { return len(command.Processes()) }
	c.Begin()
	return c
}

// start starts a command that has objects, and looks as if it had some. It ends when it is stopped,
// after a time, or after another one if that is not empty. Its objects are there for a second more.
func (c *crowd) start(t *testing.T, name string, objects, looks int, deaf time.Duration, after string) {
	closing, err := c.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.objects[name] = objects
	c.mu.Unlock()
	w := c.Watch(Command{Processes: func() []int { return make([]int, looks) }}, closing)
	ctx, end := context.WithCancel(t.Context())
	c.mu.Lock()
	c.ends[after] = append(c.ends[after], end)
	c.mu.Unlock()
	go func() {
		defer end()
		found := w.Until(ctx, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.stopped = append(c.stopped, name)
			for _, end := range c.ends[name] {
				end()
			}
		})
		time.Sleep(deaf)
		time.AfterFunc(time.Second, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.objects, name)
		})
		c.Leave()
		if found == nil {
			return
		}
		if c.Settle(t.Context(), found); found.Own {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.convicts = append(c.convicts, name)
		}
	}()
}

// TestTrial: of several commands one has too many objects, and nobody sees whose they are.
func TestTrial(t *testing.T) {
	all := []string{"innocent", "late", "owner", "young"}
	for name, c := range map[string]struct {
		looks             int // how many objects the owner looks as if it had
		deaf              time.Duration
		young             int // how many objects the young one has
		stopped, convicts []string
	}{
		"the likeliest has them":       {10, 0, 0, []string{"owner"}, nil},
		"it ends slowly":               {10, 5 * time.Second, 0, []string{"owner"}, nil},
		"all see that it has them":     {200, 5 * time.Second, 0, []string{"owner"}, []string{"owner"}},
		"two have too many":            {10, 0, 300, []string{"owner", "young"}, nil},
		"another looks like the owner": {1, 0, 0, all, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crowd := newCrowd()
				crowd.start(t, "innocent", 20, 2, 0, "")
				time.Sleep(time.Second)
				crowd.start(t, "owner", 500, c.looks, c.deaf, "")
				time.Sleep(time.Millisecond)
				crowd.start(t, "young", 10+c.young, 2+c.young/50, 0, "")
				time.Sleep(2 * time.Second)
				crowd.start(t, "late", 10, 2, 0, "")
				time.Sleep(20 * time.Second)
				synctest.Wait()
				slices.Sort(crowd.stopped)
				if !slices.Equal(crowd.stopped, c.stopped) || !slices.Equal(crowd.convicts, c.convicts) {
					t.Errorf("stopped: %v, convicted: %v; want %v and %v", crowd.stopped, crowd.convicts, c.stopped, c.convicts)
				}
				if crowd.kinds[0].Found() {
					t.Error("more are stopped")
				}
			})
		})
	}
}

// TestTrialOfNobody: the owner ends while another command may be tried, and that one is not told that
// it was the owner.
func TestTrialOfNobody(t *testing.T) {
	for ms := 2000; ms < 5500; ms += 100 {
		synctest.Test(t, func(t *testing.T) {
			crowd := newCrowd()
			crowd.start(t, "innocent", 20, 50, 0, "")
			time.Sleep(3 * time.Second)
			crowd.start(t, "owner", 500, 10, 0, "")
			time.Sleep(time.Duration(ms) * time.Millisecond)
			crowd.mu.Lock()
			end := crowd.ends[""][1]
			crowd.mu.Unlock()
			end()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if len(crowd.convicts) > 0 {
				t.Errorf("convicted if the owner ends after %d ms: %v", ms, crowd.convicts)
			}
		})
	}
}

// TestTrialAmongDecoys: commands that are stopped one after another do not keep the owner of hidden
// objects from being stopped.
func TestTrialAmongDecoys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd := newCrowd()
		crowd.start(t, "owner", 5000, 10, 0, "")
		isStopped := func() bool {
			crowd.mu.Lock()
			defer crowd.mu.Unlock()
			return slices.Contains(crowd.stopped, "owner")
		}
		for i := 0; i < 120 && !isStopped(); i++ {
			crowd.start(t, fmt.Sprint("decoy ", i), 150, 150, 0, "")
			time.Sleep(time.Second)
		}
		if !isStopped() {
			t.Error("the owner runs on after two minutes")
		}
		for _, end := range crowd.ends[""] {
			end()
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
	})
}
