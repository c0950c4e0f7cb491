//go:build cluster

package cluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/test/programs"
)

// mendedSlack is for how long after hosts are back on the network a run may begin that one of them
// was given before.
const mendedSlack = 5 * time.Second

// A step is a fault, or a kill at a stage.
type step struct {
	name string
	do   func(ctx context.Context)
	kill bool
	// parts: hosts are off the network meanwhile, and may begin later what they were given.
	parts bool
}

// disturb makes one step after the other, evenly over the actions.
func (c *cluster) disturb(ctx context.Context, steps []step) {
	for i, s := range steps {
		until(ctx, 0, func() bool { return c.right.Load() >= int64(i*clusterActions/(len(steps)+2)) })
		if ctx.Err() != nil {
			return
		}
		c.Logf("%d results: %s", c.right.Load(), s.name)
		c.countLate(false)
		s.do(ctx)
		if s.parts {
			_ = pause.For(ctx, mendedSlack)
		}
		c.countLate(s.parts)
		if s.kill {
			c.killed.Add(1)
		} else {
			c.tally.faults.Add(1)
		}
	}
}

func (c *cluster) faults() []step {
	parted := func(hosts []*host, from ...*host) func(context.Context) {
		return func(ctx context.Context) {
			for _, h := range hosts {
				for _, other := range from {
					h.avoid(other)
				}
			}
			_ = pause.For(ctx, 15*time.Second)
			for _, h := range hosts {
				for _, other := range from {
					h.meet(other)
				}
			}
		}
	}
	return []step{
		{name: "a worker is killed", do: func(context.Context) { c.restart(c.workers[0]) }},
		{name: "half the workers are off the network", parts: true, do: func(ctx context.Context) {
			c.workers[1].cut()
			c.workers[2].cut()
			_ = pause.For(ctx, 15*time.Second)
			c.workers[1].mend()
			c.workers[2].mend()
		}},
		{name: "the scheduler that serves is killed", do: func(context.Context) { c.restart(c.server()) }},
		{name: "half the workers do not reach either scheduler", parts: true, do: parted(c.workers[2:], c.schedulers...)},
		{name: "the storage is killed", do: func(context.Context) { c.restart(c.storage) }},
		{name: "a worker does not reach the storage", parts: true, do: parted(c.workers[3:], c.storage)},
		{name: "all connections break", do: func(context.Context) {
			for _, l := range c.lines {
				l.cut()
			}
			c.balancer.cut()
		}},
		{name: "the disk of a worker is full", do: c.fillDisk},
		{name: "the Redis that is master is killed", do: func(ctx context.Context) {
			c.failOver(ctx, func(m *host) { c.kill(m) }, func(m *host) { c.launch(m) })
		}},
		{name: "the Redis that is master answers nobody", do: func(ctx context.Context) {
			c.failOver(ctx, func(m *host) { c.on(m).Signal(syscall.SIGSTOP) }, func(m *host) { c.on(m).Signal(syscall.SIGCONT) })
		}},
		{name: "the Redis forgets everything", do: func(context.Context) { c.ask(c.master(), redisPort, "FLUSHALL") }},
		{name: "a worker is killed", do: func(context.Context) { c.restart(c.workers[2]) }},
		{name: "the disk of a worker turns read-only", do: func(ctx context.Context) {
			c.breakDisk(ctx, c.machine(c.workers[3]), (*sickDisk).turnReadOnly)
		}},
		{name: "the disk of a worker has errors", do: func(ctx context.Context) {
			c.breakDisk(ctx, c.machine(c.workers[3]), (*sickDisk).fail)
		}},
		{name: "the clock of a worker is an hour off", do: func(ctx context.Context) { c.setClock(ctx, c.on(c.workers[0]), nil) }},
		{name: "the clock of the scheduler that serves is an hour off", do: func(ctx context.Context) {
			c.setClock(ctx, c.on(c.server()), nil)
		}},
		{name: "a worker is cloned with its id", do: func(ctx context.Context) { c.clone(ctx, c.machine(c.workers[1])) }},
		{name: "all workers are drained for two minutes", do: func(ctx context.Context) { c.drainAll(ctx, 2*time.Minute) }},
		{name: "half the builds are interrupted", do: func(ctx context.Context) { c.interrupt(ctx, "interrupted", 10, 8) }},
	}
}

// server is the scheduler that has the lease or, for want of one, the first.
func (c *cluster) server() *host {
	if h := c.serving(); h != nil {
		return h
	}
	return c.schedulers[0]
}

// fillDisk fills the disk of the last worker while a probe runs there: the worker has to say so,
// and another one to run the probe.
func (c *cluster) fillDisk(ctx context.Context) {
	victim := c.workers[3]
	said := func(what string) int { return strings.Count(c.on(victim).Stderr.String(), what) }
	full, back := said("the disk is full"), said("sent back to the scheduler")
	others := c.drainOthers(victim)
	p := c.probe(ctx, "probe-disk")
	p.then = "; head -c 16M /dev/zero > scratch || exit 1" // more than the worker makes room for at a time
	p.submit(ctx)
	if !p.run() || p.host != victim {
		c.Errorf("the probe does not run on the worker whose disk will be full")
	}
	ballast := filepath.Join(c.disk.dir, "ballast")
	filling, stop := context.WithCancel(ctx)
	defer stop()
	var filled sync.WaitGroup
	filled.Go(func() {
		for filling.Err() == nil { // the worker makes room
			_ = exec.Command("/bin/sh", "-c", "cat /dev/zero >> "+ballast).Run() // until it fails
			_ = pause.For(filling, 100*time.Millisecond)
		}
	})
	if !until(ctx, programs.Timeout, func() bool { return said("the disk is full") > full }) {
		c.Error("the worker does not say that its disk is full")
	}
	p.letGo()
	if !until(ctx, programs.Timeout, func() bool { return said("sent back to the scheduler") > back }) {
		c.Error("the worker does not give its action back")
	}
	for _, other := range others {
		c.undrain(other)
	}
	if right, n := <-p.done, c.Starts()[p.name]; !right || n != 2 {
		c.Errorf("%s: right %v, begun %d times, has to be 2", p.name, right, n)
	}
	_ = pause.For(ctx, 3*time.Second)
	c.Logf("the worker whose disk was full gave %d actions back", said("sent back to the scheduler")-back)
	stop()
	filled.Wait()
	if err := os.Remove(ballast); err != nil {
		c.Error(err)
	}
}

// failOver takes the master of Redis away: another one is to become it, with the records and the
// lease.
func (c *cluster) failOver(ctx context.Context, lose, back func(*host)) {
	old := c.master()
	records, lease := c.records(old)
	lose(old)
	if !until(ctx, programs.Timeout, func() bool {
		m := c.master()
		return m != old && strings.HasPrefix(c.ask(m, redisPort, "ROLE"), "master")
	}) {
		c.Error("no other Redis became the master")
	}
	now, kept := c.records(c.master())
	c.Logf("of %d records %d are there after the fail-over, leases: %d of %d", records, now, kept, lease)
	if kept < lease || now < records*9/10 {
		c.Error("records are lost")
	}
	back(old)
	if !until(ctx, programs.Timeout, func() bool { return strings.HasPrefix(c.ask(old, redisPort, "ROLE"), "slave") }) {
		c.Error("the old master is no replica of the new one")
	}
	until(ctx, programs.Timeout, func() bool { return c.serving() != nil })
}

// records counts the records in a Redis: all of them, and leases.
func (c *cluster) records(h *host) (all, leases int) {
	count := func(pattern string) int {
		said := c.ask(h, redisPort, "EVAL", "local n = 0; for _, k in ipairs(redis.call('KEYS', ARGV[1])) do n = n + redis.call('HLEN', k) end; return n", "0", pattern)
		n, err := strconv.Atoi(said)
		if err != nil {
			c.Errorf("records of Redis: %q", said)
		}
		return n
	}
	return count("forerunner:*:values"), count("forerunner:{lease*:values")
}
