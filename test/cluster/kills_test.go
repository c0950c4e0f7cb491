//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	stageTries   = 5
	stageTimeout = time.Minute // for an action to get to a stage; then another one is tried
	// probeInstance is the instance name of probes only: they go before all other actions.
	probeInstance = "probe"
	settledFor    = 300 * time.Millisecond // how long it is at one before something is killed
)

// A probe is an action that something is killed under.
type probe struct {
	*cluster
	ctx     context.Context // ends when the probe has taken too long to get to its stage
	cancel  context.CancelFunc
	name    string
	then    string    // what it does after it is released
	done    chan bool // gets whether its result was right
	host    *host     // that runs it; nil: it waits
	drained bool
	holds   []func()
}

// A stage is how far an action has come when a worker or the scheduler is killed.
type stage struct {
	name string
	// reach has the probe, which has been submitted, get there and stay until let go.
	reach func(p *probe) bool
	// drained: it is submitted while no worker takes anything.
	drained bool
	// runs is how often the action begins if its worker is killed; it is once if the scheduler is.
	runs int
}

func stages() []stage {
	return []stage{
		{"queued", func(p *probe) bool { return p.host == nil }, true, 1},
		{"fetching", (*probe).fetch, true, 1},
		{"executing", (*probe).run, false, 2},
		{"uploading", (*probe).upload, false, 2},
		{"reporting", (*probe).report, false, 2},
		{"acknowledged", (*probe).acknowledge, false, 1},
	}
}

// fetch has no worker hear from the storage.
func (p *probe) fetch() bool {
	p.hold(down, p.lines[p.storage], p.workers...)
	p.undrainAll()
	return until(p.ctx, 0, p.assigned) && p.settle() && !p.Exists("at."+p.name)
}

func (p *probe) run() bool {
	return until(p.ctx, 0, func() bool { return p.Exists("at." + p.name) }) && p.assigned() && p.settle()
}

// upload has the storage not hear from its worker, and the command end.
func (p *probe) upload() bool {
	if !p.run() {
		return false
	}
	p.hold(up, p.lines[p.storage], p.host)
	p.Write("open."+p.name, "")
	return until(p.ctx, 0, func() bool { return p.Exists("end." + p.name) }) && p.settle() && len(p.done) == 0
}

// report has the scheduler not hear from its worker, and the result be there.
func (p *probe) report() bool {
	if !p.run() {
		return false
	}
	hash, size, _ := strings.Cut(p.operation(p.ctx, p.name).GetAction(), "/")
	bytes, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return false
	}
	action := &repb.Digest{Hash: hash, SizeBytes: bytes}
	p.hold(up, p.lines[p.schedulers[0]], p.host)
	p.hold(up, p.lines[p.schedulers[1]], p.host)
	p.Write("open."+p.name, "")
	results := repb.NewActionCacheClient(p.calls)
	return until(p.ctx, 0, func() bool {
		_, err := results.GetActionResult(p.ctx, &repb.GetActionResultRequest{InstanceName: probeInstance, ActionDigest: action})
		return err == nil
	}) && p.settle() && len(p.done) == 0
}

// acknowledge has the worker not hear from the scheduler while the client gets the result. If the
// worker had called just before, it cannot report the result and counts as lost, and another worker
// gets the probe; then this stage was not reached.
func (p *probe) acknowledge() bool {
	if !p.run() {
		return false
	}
	p.hold(down, p.lines[p.schedulers[0]], p.host)
	p.hold(down, p.lines[p.schedulers[1]], p.host)
	p.Write("open."+p.name, "")
	return until(p.ctx, 0, func() bool { return len(p.done) > 0 }) && p.Starts()[p.name] == 1
}

// assigned reports whether a worker has it.
func (p *probe) assigned() bool {
	o := p.operation(p.ctx, p.name)
	for _, h := range p.workers {
		if strings.Contains(o.GetWorker(), h.name) {
			p.host = h
		}
	}
	return p.host != nil
}

func (p *probe) settle() bool { return pause.For(p.ctx, settledFor) == nil }

func (p *probe) hold(way direction, l *line, hosts ...*host) {
	p.holds = append(p.holds, l.hold(way, hosts...))
}

// drainOthers drains all workers but one, and returns the patterns to undrain.
func (c *cluster) drainOthers(but *host) (patterns []*admin.Pattern) {
	for _, h := range c.workers {
		if h != but {
			patterns = append(patterns, named(h.name))
			c.drain(named(h.name))
		}
	}
	return patterns
}

// drainAll has no worker take anything, and returns when they have nothing.
func (p *probe) drainAll() {
	p.drained = true
	p.drain(named("*"))
	until(p.ctx, 0, func() bool { return p.idle(p.ctx) })
}

func (p *probe) undrainAll() {
	p.undrain(named("*"))
	p.drained = false
}

// probe returns one that has not been submitted; it is to get where it shall be in stageTimeout.
func (c *cluster) probe(ctx context.Context, name string) *probe {
	ctx, cancel := context.WithTimeout(ctx, stageTimeout)
	return &probe{cluster: c, ctx: ctx, cancel: cancel, name: name, done: make(chan bool, 1)}
}

// submit has a client wait for the probe until ctx ends, and returns when the scheduler has it.
func (p *probe) submit(ctx context.Context) bool {
	middle := fmt.Sprintf("(cd %s; touch at.%s; until [ -e open.%[2]s ]; do sleep 0.02; done; touch end.%[2]s)%[3]s", p.Dir, p.name, p.then)
	go func() { p.done <- p.runAction(ctx, work{name: p.name, middle: middle, instance: probeInstance}) }()
	return until(p.ctx, 0, func() bool { return p.operation(p.ctx, p.name) != nil })
}

// letGo lets the probe continue.
func (p *probe) letGo() {
	for _, release := range p.holds {
		release()
	}
	p.Write("open."+p.name, "")
	if p.drained {
		p.undrainAll()
	}
	p.cancel()
}

// kills are kills -9 of the worker that has an action, and of the scheduler, at every stage of one.
func (c *cluster) kills() (steps []step) {
	for _, s := range stages() {
		for _, victim := range []string{"worker", "scheduler"} {
			steps = append(steps, step{
				name: fmt.Sprintf("the %s is killed when an action is %s", victim, s.name), kill: true,
				do: func(ctx context.Context) { c.killAt(ctx, s, victim) },
			})
		}
	}
	return steps
}

// killAt has one action after the other try to get to a stage, until one does and something was
// killed.
func (c *cluster) killAt(ctx context.Context, s stage, victim string) {
	for try := range stageTries {
		if c.tryKill(ctx, s, victim, fmt.Sprintf("probe-%s-%s-%d", s.name, victim, try)) || ctx.Err() != nil {
			return
		}
	}
	c.Errorf("in %d tries no action was %s when the %s was to be killed", stageTries, s.name, victim)
}

// tryKill reports whether the action reached the stage.
func (c *cluster) tryKill(ctx context.Context, s stage, victim, name string) bool {
	until(ctx, programs.Timeout, func() bool { return c.serving() != nil })
	p := c.probe(ctx, name)
	if s.drained {
		p.drainAll()
	}
	reached := p.submit(ctx) && s.reach(p)
	dead := p.host
	if victim == "scheduler" {
		dead = c.server()
	} else if dead == nil {
		dead = c.workers[0] // no worker has it yet
	}
	if reached {
		c.kill(dead)
	}
	p.letGo()
	if reached {
		c.launch(dead)
	}
	right, n, most := <-p.done, c.Starts()[name], 1
	if victim == "worker" {
		most = s.runs
	}
	if reached && (!right || n < 1 || n > most) {
		c.Errorf("%s: right %v, begun %d times, may be %d", name, right, n, most)
	}
	return reached
}
