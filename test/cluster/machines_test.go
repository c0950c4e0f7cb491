package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/test/programs"
)

// A machine is one that a worker runs on.
type machine struct {
	name    string
	process func() *programs.Process
	launch  func()
	// twin starts another process that says that it is this worker, with folders of its own; nil:
	// not of this one.
	twin func() *programs.Process
	disk *sickDisk // nil: one that is well
}

// told is how long workers may take to hear that something is to stop.
const told = 2 * time.Second

// otherwise is how many results come meanwhile before a fault is mended.
const otherwise = 20

// goesOn waits until results have come all the same.
func (f *farm) goesOn(ctx context.Context) {
	f.Helper()
	before := f.right.Load()
	f.expect(ctx, fmt.Sprintf("%d results", otherwise), func() bool { return f.right.Load() >= before+otherwise })
}

// breakDisk breaks the disk of a worker, which has to rest, has others do the work, and replaces
// it.
func (f *farm) breakDisk(ctx context.Context, m machine, by func(*sickDisk)) {
	f.Helper()
	rests := func() int { return strings.Count(m.process().Stderr.String(), "the worker rests") }
	before := rests()
	by(m.disk)
	f.expect(ctx, "the worker says that it rests", func() bool { return rests() > before })
	f.goesOn(ctx)
	m.process().Kill()
	m.disk.replace()
	m.launch()
	f.takesWork(ctx, m)
}

// takesWork sees that a worker runs something again.
func (f *farm) takesWork(ctx context.Context, m machine) {
	f.Helper()
	f.expect(ctx, m.name+" takes work", func() bool {
		list, err := f.executing(ctx)
		return err == nil && slices.ContainsFunc(list, func(o *admin.Operation) bool {
			return strings.Contains(o.GetWorker(), `"`+m.name+`"`)
		})
	})
}

// executing lists what runs.
func (f *farm) executing(ctx context.Context) ([]*admin.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := f.admin.ListOperations(ctx, &admin.ListOperationsRequest{
		Pattern: &admin.Pattern{Attributes: map[string]string{"stage": "executing"}},
	})
	return list.GetOperations(), err
}

// setClock shifts the clock of a process by an hour, forward and back, while results come. shows
// returns the time of its latest work, by that clock; nil: not checked.
func (f *farm) setClock(ctx context.Context, p *programs.Process, shows func() time.Time) {
	f.Helper()
	for _, ahead := range []time.Duration{time.Hour, -time.Hour, 0} {
		if err := setClocks(p.Pid(), ahead); err != nil {
			f.Error(err)
			return
		}
		f.goesOn(ctx)
		if shows == nil {
			continue
		}
		f.expect(ctx, fmt.Sprintf("the clock of the process is off by %s", ahead), func() bool {
			return time.Until(shows()).Round(time.Hour) == ahead
		})
	}
}

// lastQueued is when the scheduler has queued something that runs, by its own clock.
func (f *farm) lastQueued(ctx context.Context) time.Time {
	list, err := f.executing(ctx)
	if err != nil || len(list) == 0 {
		return time.Time{}
	}
	return list[0].GetQueued().AsTime()
}

// lastLogged is when a process has logged something last, by its own clock.
func lastLogged(p *programs.Process) (last time.Time) {
	for line := range strings.Lines(p.Stderr.String()) {
		var logged struct{ TS time.Time }
		if json.Unmarshal([]byte(line), &logged) == nil && !logged.TS.IsZero() {
			last = logged.TS
		}
	}
	return last
}

// clone has another process say that it is a worker.
func (f *farm) clone(ctx context.Context, m machine) {
	f.Helper()
	twin := m.twin()
	f.expect(ctx, "the second process with a worker's identity is told that there is one", func() bool {
		return strings.Contains(twin.Stderr.String(), "another process has this worker's identity")
	})
	f.goesOn(ctx)
	f.takesWork(ctx, m)
	if strings.Contains(m.process().Stderr.String(), "another process has this worker's identity") {
		f.Error("the first process with a worker's identity was refused")
	}
	twin.Drain()
}

// drainAll drains everything for a while. Nothing begins meanwhile, and nothing fails.
func (f *farm) drainAll(ctx context.Context, d time.Duration) {
	f.Helper()
	f.drain(named("*"))
	f.expect(ctx, "nothing runs", func() bool { return f.idle(ctx) })
	before := len(f.Starts())
	_ = pause.For(ctx, d)
	if now := len(f.Starts()); now != before {
		f.Errorf("%d actions began while all workers were drained", now-before)
	}
	f.undrain(named("*"))
	f.goesOn(ctx)
}

// idle reports whether nothing runs.
func (f *farm) idle(ctx context.Context) bool {
	list, err := f.executing(ctx)
	return err == nil && len(list) == 0
}

// interrupt runs several builds of several actions each. Half of the builds are interrupted while
// some of their actions run and others wait. The farm must do no more for them, and everything for
// the others.
func (f *farm) interrupt(ctx context.Context, name string, builds, actions int) {
	f.Helper()
	cancelled, interrupt := context.WithCancel(ctx)
	defer interrupt()
	var right atomic.Int64
	var all sync.WaitGroup
	named := func(build, i int) string { return fmt.Sprintf("%s-%d-%d", name, build, i) }
	for build := range builds {
		for i := range actions {
			w := work{name: named(build, i), middle: "sleep 0.3", instance: name}
			of := ctx
			if build%2 == 0 {
				of, w.middle = cancelled, "sleep 300"
			}
			f.Write("in/"+w.name+"/in", w.input())
			all.Go(func() {
				if build%2 > 0 {
					if f.runAction(of, w) {
						right.Add(1)
					}
					return
				}
				if _, err := f.execute(of, w); err == nil {
					f.Errorf("%s ended", w.name)
				}
			})
		}
	}
	begun := func() (n int) {
		starts := f.Starts()
		for build := 0; build < builds; build += 2 {
			for i := range actions {
				n += starts[named(build, i)]
			}
		}
		return n
	}
	f.expect(ctx, "one action of the builds to interrupt runs, and the last is there", func() bool {
		return begun() > 0 && f.operation(ctx, named(builds-2, actions-1)) != nil
	})
	interrupt()
	gone := func() bool {
		for build := 0; build < builds; build += 2 {
			for i := range actions {
				if f.operation(ctx, named(build, i)) != nil {
					return false
				}
			}
		}
		return true
	}
	f.expect(ctx, "the farm does nothing for builds that were interrupted", gone)
	_ = pause.For(ctx, told) // actions that workers had already been given may begin until the workers hear of it
	ran := begun()
	all.Wait()
	if n := begun(); n > ran {
		f.Errorf("%d actions of interrupted builds began after that", n-ran)
	}
	if n := right.Load(); n != int64(builds/2*actions) {
		f.Errorf("%d actions of the other builds are right, of %d", n, builds/2*actions)
	}
	f.Logf("of %d actions of interrupted builds %d had begun", (builds+1)/2*actions, ran)
}
