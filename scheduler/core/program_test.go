package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// suspendAfter is tuning.Config.SuspendAfter of these tests.
const suspendAfter = 3

// A host is the model of a program: all its outcomes since it was last trusted.
type host struct {
	name     string
	fails    float64 // of its actions
	drained  bool
	outcomes []bool // whether each failed
	standing trust.Standing
	ends     time.Time // of its suspension
	// tried is the position that has the action of a trial.
	tried string
}

func (h *host) isWell() bool {
	n := len(h.outcomes)
	return h.standing == trust.Trusted && (n == 0 || !h.outcomes[n-1])
}

// isSuspect: the last three outcomes failed, or the last one and half of the last sixteen.
func (h *host) isSuspect() bool {
	last := func(n int) (failed int) {
		for _, f := range h.outcomes[max(0, len(h.outcomes)-n):] {
			if f {
				failed++
			}
		}
		return failed
	}
	return last(suspendAfter) == suspendAfter || last(1) == 1 && last(16) >= 8
}

// A court is the model of probation: farm has the actions of workers. The answers of State are
// compared with the model.
type court struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	state  *State
	now    time.Time
	hosts  map[string]*host
	// has is the action of each position; pauses are the suspensions, whose durations the model
	// takes from State.
	has         map[string]*request.Operation
	held        map[uint64]string
	call, made  uint64
	suspensions int
	trials      int
}

const positionsOfHost = 3

func newCourt(t *testing.T, seed uint64, hosts int) *court {
	c := &court{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 7)), now: epoch, hosts: map[string]*host{},
		state: must(NewState(tuning.Config{
			SuspendAfter: suspendAfter,
			WorkerSlack:  time.Hour,
		})), has: map[string]*request.Operation{}, held: map[uint64]string{},
	}
	for i := range hosts {
		name := fmt.Sprintf("h%d", i)
		c.hosts[name] = &host{name: name}
	}
	return c
}

func (c *court) of(position string) *host { return c.hosts[position[:2]] }

// peersAreWell: more than half of the others are, and one of them takes work.
func (c *court) peersAreWell(h *host) bool {
	well, peers, serve := 0, 0, false
	for _, other := range c.hosts {
		if other == h {
			continue
		}
		peers++
		if other.isWell() {
			well++
		}
		serve = serve || !other.drained && (other.standing == trust.Trusted || other.standing == trust.OnTrial)
	}
	return 2*well > peers && serve
}

// ended takes how a run ended, before State is told.
func (c *court) ended(h *host, position string, failed bool) {
	h.outcomes = append(h.outcomes, failed)
	switch {
	case h.standing == trust.OnTrial && h.tried == position && !failed:
		h.trust()
	case h.standing == trust.OnTrial && h.tried == position, h.standing == trust.Trusted && h.isSuspect() && failed:
		if c.peersAreWell(h) {
			h.standing, h.tried = trust.Suspended, ""
		}
	}
	if h.tried == position {
		h.tried = "" // the next one is tried
	}
}

func (h *host) trust() { h.standing, h.outcomes, h.tried = trust.Trusted, nil, "" }

// amnesty trusts all workers if otherwise none could take work.
func (c *court) amnesty() {
	suspended := false
	for _, h := range c.hosts {
		if !h.drained && h.standing != trust.Suspended {
			return // one on trial has a position that it is tried with
		}
		suspended = suspended || !h.drained
	}
	for _, h := range c.hosts {
		if suspended && h.standing != trust.Trusted {
			h.trust()
		}
	}
}

// passes lets time pass. Suspensions that end by then end.
func (c *court) passes(d time.Duration) {
	c.now = c.now.Add(d)
	c.endSuspensions()
	c.tell(event.Tick{})
}

func (c *court) endSuspensions() {
	for _, h := range c.hosts {
		if h.standing == trust.Suspended && !c.now.Before(h.ends) {
			h.standing, h.tried = trust.OnTrial, ""
		}
	}
}

func (c *court) tell(e event.Event) {
	c.t.Helper()
	out := c.state.Step(c.now, e)
	_, report := e.(*event.Report)
	for key, w := range c.state.workers.All() {
		if h := c.of(key); !report && h.standing != trust.Trusted && w.program.record.Standing() == trust.Trusted {
			h.trust() // drains take positions one by one; between two of them no other worker was left
		}
	}
	for _, s := range out.Suspensions {
		h := c.hosts[s.ID[names.HostKey]]
		if h.standing != trust.Suspended {
			c.t.Fatalf("at %s %s is suspended after %v; its peers are well: %t", c.now.Sub(epoch),
				h.name, h.outcomes, c.peersAreWell(h))
		}
		c.suspensions++
		h.ends = s.Until
	}
	for _, r := range out.Replies {
		position := c.held[r.Call]
		delete(c.held, r.Call)
		if r.Do != event.Execute || c.has[position] == r.Run {
			continue
		}
		h := c.of(position)
		if h.standing == trust.Suspended || h.standing == trust.OnTrial && h.tried != "" || h.drained {
			c.t.Fatalf("seed %d: at %s %s is given %s: standing %d, tried %q, drained %t", c.seed,
				c.now.Sub(epoch), position, r.Run.Name, h.standing, h.tried, h.drained)
		}
		if h.standing == trust.OnTrial {
			h.tried = position
			c.trials++
		}
		c.has[position] = r.Run
	}
	if c.made%10 == 0 {
		if problem := c.state.Check(); problem != "" {
			c.t.Fatal(problem)
		}
	}
	for key := range c.state.workers.All() {
		if v, _ := c.state.View().Program(key); v.Standing != c.of(key).standing {
			c.t.Fatalf("at %s %s is of standing %d, want %d after %v", c.now.Sub(epoch), key,
				v.Standing, c.of(key).standing, c.of(key).outcomes)
		}
	}
}

// report makes a call of a position, with or without the end of its action.
func (c *court) report(position string, end bool) {
	h := c.of(position)
	c.call++
	r := &event.Report{
		Call: c.call, Worker: position, Doing: event.Idle,
		ID: map[string]string{names.HostKey: h.name, names.PositionKey: position},
	}
	c.held[c.call] = position
	if op := c.has[position]; op != nil {
		r.Doing, r.Action = event.Executing, op.Digest
		if end {
			r.Doing, r.Response = event.Completed, &repb.ExecuteResponse{Result: &repb.ActionResult{}}
			failed := c.random.Float64() < h.fails
			if failed {
				code := []codes.Code{codes.Internal, codes.Unavailable, codes.Unknown, codes.DataLoss}[c.random.IntN(4)]
				r.Response = &repb.ExecuteResponse{Status: &spb.Status{Code: int32(code)}}
			} else if c.random.IntN(9) == 0 {
				r.Response.Result.ExitCode = 1 // which says that it works
			}
			delete(c.has, position)
			c.ended(h, position, failed)
		}
	}
	c.tell(r)
}

func (c *court) submit() {
	c.made++
	name := fmt.Sprint(c.made)
	c.tell(event.Submit{Operation: &request.Operation{
		Name:   name,
		Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
	}})
}

func (c *court) drain(h *host) {
	p := must(pattern.New(map[string]string{names.HostKey: h.name}))
	h.drained = !h.drained
	c.amnesty()
	if h.drained {
		c.tell(Drain{Record: drain.Record{Pattern: p}})
	} else {
		c.tell(Undrain{Pattern: p})
	}
}

// courtOf plays the history of a seed.
func courtOf(t *testing.T, seed uint64) *court {
	t.Helper()
	c := newCourt(t, seed, 2+int(seed%4))
	var positions []string
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		for i := range positionsOfHost {
			positions = append(positions, fmt.Sprintf("%s/%d", name, i))
		}
	}
	for step := range 750 {
		c.passes(time.Duration(c.random.ExpFloat64() * float64(200*time.Millisecond)))
		if step%200 == 0 {
			for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
				c.hosts[name].fails = []float64{0, 0, 0.1, 0.6, 1}[c.random.IntN(5)]
			}
		}
		switch what := c.random.IntN(40); {
		case what == 0 && seed%3 == 0:
			c.drain(c.hosts[fmt.Sprintf("h%d", c.random.IntN(len(c.hosts)))])
		case what < 12 && c.state.View().Counts().Queued < 2*len(positions):
			c.submit()
		default:
			c.report(positions[c.random.IntN(len(positions))], c.random.IntN(3) > 0)
		}
	}
	c.recover(positions)
	return c
}

// FuzzSuspensions is TestSuspensionsAreAsTold with more seeds.
func FuzzSuspensions(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { courtOf(t, seed) })
}

// TestSuspensionsAreAsTold has workers fail at random, and compares suspended, tried and trusted
// workers with the model.
func TestSuspensionsAreAsTold(t *testing.T) {
	suspensions, trials := 0, 0
	for seed := range uint64(12) { // two to five hosts, drained or not
		c := courtOf(t, seed)
		suspensions, trials = suspensions+c.suspensions, trials+c.trials
	}
	if suspensions < 25 || trials < 25 {
		t.Errorf("only %d suspensions and %d trials", suspensions, trials)
	}
}

// recover sees that workers that fail no more have all work again.
func (c *court) recover(positions []string) {
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		h := c.hosts[name]
		h.fails = 0
		if h.drained {
			c.drain(h)
		}
	}
	trusted := func() bool {
		for _, h := range c.hosts {
			if h.standing != trust.Trusted {
				return false
			}
		}
		return true
	}
	for i := 0; i < 150 && !trusted(); i++ {
		c.passes(10 * time.Second)
		for range positions {
			c.submit()
		}
		for range 2 {
			for _, position := range positions {
				c.report(position, true)
			}
		}
	}
	if !trusted() {
		c.t.Errorf("seed %d: not all are trusted in the end", c.seed)
	}
}
