package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	shortClients = 6
	shortDrain   = 3 * time.Second
	// shortFault limits the time of one fault, and of the remaining work at the end.
	shortFault = 2 * time.Minute
)

// TestMachines has a scheduler and three workers run actions with known outputs while the machines
// of the workers break: each fault once, and for a short time. "make test-cluster" has more of
// them.
func TestMachines(t *testing.T) {
	t.Parallel()
	p := programs.New(t, programs.ShareFolder, "FORERUNNER_CGROUP=off")
	scheduler, address := p.Scheduler()
	f := &farm{Test: p, done: outcomes{counts: map[string]int{}}}
	conn := p.Dial(address)
	f.calls = &programs.SplitConn{Execution: conn, Storage: conn}
	f.admin = admin.NewSchedulerClient(conn)
	var machines []machine
	for i := range 3 {
		machines = append(machines, f.machine(fmt.Sprint("machine", i), address, i == 2))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded, unload := context.WithCancel(ctx)
	var clients sync.WaitGroup
	for client := range shortClients {
		clients.Go(func() {
			for i := 0; loaded.Err() == nil; i++ {
				if f.runAction(ctx, work{name: fmt.Sprintf("client%d-%d", client, i), middle: "sleep 0.1"}) {
					f.right.Add(1)
				}
			}
		})
	}
	for _, fault := range []struct {
		name string
		do   func(ctx context.Context)
	}{
		{"a disk turns read-only", func(ctx context.Context) { f.breakDisk(ctx, machines[2], (*sickDisk).turnReadOnly) }},
		{"a disk has errors", func(ctx context.Context) { f.breakDisk(ctx, machines[2], (*sickDisk).fail) }},
		{"the clock of a worker is an hour off", func(ctx context.Context) {
			p := machines[0].process()
			f.setClock(ctx, p, func() time.Time { return lastLogged(p) })
		}},
		{"the clock of the scheduler is an hour off", func(ctx context.Context) {
			f.setClock(ctx, scheduler, func() time.Time { return f.lastQueued(ctx) })
		}},
		{"a worker is cloned", func(ctx context.Context) { f.clone(ctx, machines[1]) }},
		{"all workers are drained", func(ctx context.Context) { f.drainAll(ctx, shortDrain) }},
		{"half the builds are interrupted", func(ctx context.Context) { f.interrupt(ctx, "builds", 4, 12) }},
	} {
		f.shortly(ctx, fault.name, fault.do)
		if t.Failed() {
			break // later faults would show the same
		}
	}
	unload()
	tired := time.AfterFunc(shortFault, cancel)
	defer tired.Stop()
	clients.Wait()
	t.Logf("%d actions are right, %d wrong, %d have no result; clients tried %d calls again; the longest wait was %s",
		f.right.Load(), f.wrong.Load(), f.failed.Load(), f.again.Load(), f.done.longest.Round(time.Millisecond))
	if f.wrong.Load()+f.failed.Load()+f.again.Load() > 0 {
		t.Error("clients have seen the faults")
	}
	for _, m := range machines {
		m.process().Drain()
	}
}

// shortly applies a fault for a short time.
func (f *farm) shortly(ctx context.Context, name string, do func(context.Context)) {
	f.Helper()
	ctx, cancel := context.WithTimeout(ctx, shortFault)
	defer cancel()
	before, begun := f.right.Load(), time.Now()
	do(ctx)
	f.Logf("%s: %d results in %s", name, f.right.Load()-before, time.Since(begun).Round(time.Millisecond))
}

// machine starts a worker, on a disk that can fail or not.
func (f *farm) machine(name, address string, sick bool) machine {
	f.Helper()
	data := filepath.Join(f.Dir, name)
	f.Cleanup(func() { programs.ExpectNoMounts(f.T, data) })
	m := machine{name: name}
	if sick {
		m.disk = newSickDisk(f.Test, data, 128<<20)
	}
	start := func(data string) *programs.Process {
		return f.Start("forerunner-worker", "--data", data, "--id", "name="+name,
			"--scheduler", "grpc://"+address, "--storage", "grpc://"+address, "--cache-size", "1G")
	}
	var p *programs.Process
	m.process = func() *programs.Process { return p }
	m.launch = func() {
		p = start(data)
		p.WaitFor(&p.Stderr, programs.ReadyLine)
	}
	m.twin = func() *programs.Process {
		f.Cleanup(func() { programs.ExpectNoMounts(f.T, data+"-twin") })
		return start(data + "-twin")
	}
	m.launch()
	return m
}
