package core

import (
	"fmt"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A bazaar is a herd of many pools. Its State settles late, so that all that has come until then is
// to be done at once.
type bazaar struct {
	*herd
	made int
}

const bazaarOpens = 20 * time.Second

func newBazaar(t *testing.T) *bazaar {
	return &bazaar{herd: &herd{t: t, now: epoch, state: must(NewState(tuning.Config{
		Queues: []levels.QueueConfig{{}}, Settle: bazaarOpens, SyncInterval: never, WorkerSlack: never, IdleHold: never,
		MatchGrace: never,
	}))}}
}

// worker adds a worker with these properties.
func (b *bazaar) worker(name, platform string) {
	b.calls++
	b.tell(&event.Report{
		Call: b.calls, Worker: name, ID: map[string]string{"name": name}, Doing: event.Idle,
		Platform: request.NewPlatform(properties(split(platform))),
	})
}

// submit submits n actions that ask for a platform.
func (b *bazaar) submit(n int, platform string) {
	for range n {
		b.made++
		name := fmt.Sprint("op", b.made)
		b.tell(event.Submit{Operation: &request.Operation{
			Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
			Platform: request.NewPlatform(properties(split(platform))),
		}})
	}
}

// most ticks until nothing is to be done at once, and returns how many less are left after one
// event at most.
func (b *bazaar) most(left func() int) (most int) {
	b.t.Helper()
	for before := left(); ; {
		next := b.tell(event.Tick{}).NextTick
		now := left()
		most, before = max(most, before-now), now
		if next.IsZero() || next.After(b.now) {
			break
		}
		if b.steps > 10*herdTasks {
			b.t.Fatal("there is no end")
		}
	}
	if problem := b.state.Check(); problem != "" {
		b.t.Fatal(problem)
	}
	return most
}

// TestManyCompareWhatMayMove has actions move to idle workers of another pool from behind many that
// may not, of many queues: an event has as many moves as it has effort for the comparisons.
func TestManyCompareWhatMayMove(t *testing.T) {
	const before, idle = 20, 100
	b := newBazaar(t)
	for i := range mostTogether {
		own := fmt.Sprintf("container-image=%d", i) // the other pools lack this property
		b.worker(fmt.Sprint("w", i), own+",only=1")
		b.submit(1+before, own+",only=1")
		b.submit(3, own)
	}
	for i := range idle {
		b.worker(fmt.Sprint("any", i), "")
	}
	b.now = b.now.Add(bazaarOpens)
	most := b.most(func() int { return idle - int(b.state.View().Tally().Moved) })
	if limit := 1 + tuning.DefaultEffort/(mostTogether*before); most == 0 || most > limit {
		t.Errorf("%d moved in one event, want %d at most", most, limit)
	}
	if n := b.state.View().Tally(); n.Moved != idle {
		t.Errorf("%+v, want %d moved", n, idle)
	}
}

// TestManyRoam has workers of many pools become idle while many other queues have tasks that may
// move. An event must examine only as many pools as its effort allows.
func TestManyRoam(t *testing.T) {
	const roaming, pools = 400, 100
	b := newBazaar(t)
	for i := range pools {
		b.worker(fmt.Sprint("other", i), fmt.Sprintf("p=%d", i))
	}
	for i := range roaming {
		b.worker(fmt.Sprint("w", i), fmt.Sprintf("container-image=%d", i))
	}
	for i := range 2 * roaming {
		b.submit(1, fmt.Sprintf("container-image=%d", i/2))
	}
	b.now = b.now.Add(bazaarOpens)
	touched := func() (n int) {
		for _, p := range b.state.dispatch.reaches.touched {
			if p.hasIdle() {
				n++
			}
		}
		return n
	}
	most, limit := b.most(touched), 1+tuning.DefaultEffort/roaming
	if n := len(b.state.dispatch.reaches.roaming); n != roaming || most == 0 || most > limit {
		t.Errorf("%d queues roam, what they have was looked at for %d pools in one event, want %d at most", n, most, limit)
	}
}

// TestManySurveys adds a pool while many queues have tasks for many platforms. An event must
// recompute the reach of only as many queues as its effort allows.
func TestManySurveys(t *testing.T) {
	const pools, platforms = 200, 40
	b := newBazaar(t)
	for i := range pools {
		b.worker(fmt.Sprint("w", i), fmt.Sprintf("p=%d", i))
	}
	for i := range pools * platforms {
		b.submit(1, fmt.Sprintf("p=%d,container-image=%d", i/platforms, i%platforms))
	}
	for i := range 2 * pools { // too many to compare all: the reach is everything
		b.submit(1, fmt.Sprintf("p=0,persistentWorkerKey=%d", i))
	}
	b.worker("late", "late=1")
	stale := func() int { return len(b.state.dispatch.reaches.stale) }
	left := stale()
	most := b.most(stale)
	limit := 1 + tuning.DefaultEffort/(platforms*pools/compares)
	if left < pools-limit || most > limit {
		t.Errorf("%d were left, %d of them surveyed in one event, want %d at most", left, most, limit)
	}
	for p := range b.state.dispatch.pools.All() {
		for _, q := range p.queues {
			if q.line.Len() > 0 && !b.state.dispatch.reaches.isCurrent(q) {
				t.Fatal("a reach is of pools that there were before")
			}
			if n := len(q.reach.pools); len(q.asked) > pools && n != pools || len(q.asked) == platforms && n != 0 {
				t.Errorf("what asks for %d platforms reaches %d pools", len(q.asked), n)
			}
		}
	}
}
