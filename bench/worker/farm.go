package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

// outputBytes is the size of an action's output in the utilisation rows.
const outputBytes = 50_000_000

// A workerCell is a worker with the number of clients that keep it busy.
type workerCell struct {
	slots, clients  int
	reportWidth     int
	sandbox, cgroup string
}

// A workerSample has the measurements of one run of a cell.
type workerSample struct {
	ms        float64 // median time from Execute to its response
	perSecond float64 // actions per second
	cpu, busy float64 // shares of slots × time: CPU time of commands; presence of a command
	// CPU time in milliseconds per action.
	farmMS, launchersMS, commandsMS float64
}

type workerBench struct {
	farm         *testbed.Farm
	o            *workerOptions
	noops, makes []digest.Digest // actions
	samples      map[workerCell][]workerSample
	cold, warm   verifySample
	floors       floor.Floors
}

func newWorkerBench(f *testbed.Farm, o *workerOptions) *workerBench {
	return &workerBench{farm: f, o: o, samples: map[workerCell][]workerSample{}}
}

// measure takes all samples. Each run measures every cell once.
func (b *workerBench) measure(ctx context.Context) (err error) {
	if b.noops, err = testbed.StoreVariants(ctx, b.farm.Storage, b.o.noops, &repb.Command{Arguments: []string{"/bin/true"}}); err != nil {
		return err
	}
	script := fmt.Sprintf("head -c %d /dev/urandom >out", outputBytes)
	makes := testbed.NewCommand([]string{"/bin/sh", "-c", script}, "out", "PATH=/usr/bin:/bin")
	if b.makes, err = testbed.StoreVariants(ctx, b.farm.Storage, b.o.outputs, makes); err != nil {
		return err
	}
	for run := range b.o.Runs {
		for _, c := range b.wanted() {
			s, err := b.run(ctx, c)
			if err != nil {
				return fmt.Errorf("%+v: %w", c, err)
			}
			report.Progress("run %d of %d, %+v: %.2f ms, %.0f/s, CPU %.2f, busy %.2f", run+1, b.o.Runs, c, s.ms, s.perSecond, s.cpu, s.busy)
			b.samples[c] = append(b.samples[c], s)
		}
		if b.o.Wants(floor.Names()...) {
			if err := b.floors.Measure(ctx, filepath.Join(b.farm.Dir, "floors"), b.o.noops); err != nil {
				return err
			}
		}
	}
	return b.measureVerify(ctx)
}

// run takes a sample of a cell on a new worker, which has run none of the actions.
func (b *workerBench) run(ctx context.Context, c workerCell) (s workerSample, err error) {
	f := b.farm
	f.Starts++
	data := filepath.Join(f.Dir, fmt.Sprintf("worker-%d", f.Starts))
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	if err := os.Mkdir(data, 0o755); err != nil {
		return s, err
	}
	address := "grpc://" + f.Address
	w := &farm.Worker{
		Scheduler: address, Storage: address, ID: map[string]string{"bench": fmt.Sprint(f.Starts)},
		Data: data, CacheSize: "8G", Slots: c.slots, SizeClass: 1, ReportWidth: c.reportWidth,
		Sandbox: c.sandbox, Cgroup: c.cgroup, Prefetch: true, PrefetchMentions: true, Disk: scrub.Disk{SpreadFolders: true}, CommandsCome: true, Logger: f.Log,
	}
	actions := b.noops
	if c.makes() {
		actions = b.makes
	}
	err = f.Serve(ctx, func() error {
		s, err = b.load(ctx, c, actions)
		return err
	}, w)
	return s, err
}

// load has the clients of c execute actions, each client one at a time.
func (b *workerBench) load(ctx context.Context, c workerCell, actions []digest.Digest) (s workerSample, err error) {
	ms := make([]float64, len(actions))
	answers := make([]*repb.ExecuteResponse, len(actions))
	before, err := cpuNow()
	if err != nil {
		return s, err
	}
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for client := range c.clients {
		g.Go(func() error {
			for i := client; i < len(actions); i += c.clients {
				asked := time.Now()
				stream, err := repb.NewExecutionClient(b.farm.Conn).Execute(ctx,
					&repb.ExecuteRequest{ActionDigest: actions[i].Proto(), SkipCacheLookup: true})
				if err == nil {
					answers[i], err = load.AwaitAnswer(stream)
				}
				if err != nil {
					return fmt.Errorf("execute action %d: %w", i, err)
				}
				ms[i] = report.Milliseconds(time.Since(asked))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return s, err
	}
	took := time.Since(began).Seconds()
	after, err := cpuNow()
	if err != nil {
		return s, err
	}
	s.farmMS, s.launchersMS, s.commandsMS = after.since(before).each(len(actions))
	s.ms, s.perSecond = report.Median(ms), float64(len(actions))/took
	for _, a := range answers {
		cpu, busy, err := used(a.GetResult().GetExecutionMetadata())
		if err != nil {
			return s, err
		}
		s.cpu += cpu / (took * float64(c.slots))
		s.busy += busy / (took * float64(c.slots))
	}
	return s, nil
}

// used returns the CPU seconds of a command, and how long it existed.
func used(m *repb.ExecutedActionMetadata) (cpu, there float64, err error) {
	there = m.GetExecutionCompletedTimestamp().AsTime().Sub(m.GetExecutionStartTimestamp().AsTime()).Seconds()
	for _, packed := range m.GetAuxiliaryMetadata() {
		var u resourceusage.POSIXResourceUsage
		if !packed.MessageIs(&u) {
			continue
		}
		if err := packed.UnmarshalTo(&u); err != nil {
			return 0, 0, fmt.Errorf("read resource usage: %w", err)
		}
		cpu += (u.GetUserTime().AsDuration() + u.GetSystemTime().AsDuration()).Seconds()
	}
	return cpu, there, nil
}
