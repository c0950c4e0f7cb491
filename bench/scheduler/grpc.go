package scheduler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/report"
	casserver "github.com/forerunner-build/forerunner/cas/server"
)

// The simulated farm.
const (
	grpcWorkers = 1000
	grpcActions = 40_000 // measured
	grpcWarm    = 20_000 // before the measured ones: the heap fills up once
)

// A busyCell is a way to load a scheduler with clients and workers.
type busyCell struct {
	suffix        string // of its rows
	perConnection int    // streams per connection
	apart         bool   // the storage is in another process
	skipLookup    bool   // clients set skip_cache_lookup
}

func busyCells() []busyCell {
	return []busyCell{
		{perConnection: 20},
		{suffix: "_100", perConnection: 100},
		{suffix: "_apart", perConnection: 20, apart: true},
		{suffix: "_apart_anew", perConnection: 20, apart: true, skipLookup: true},
	}
}

// names returns the rows of the cell. Only the first cell has rows beyond the first two.
func (c busyCell) names() []string {
	names := []string{"grpc_cpu_us" + c.suffix, "grpc_actions_per_s" + c.suffix}
	if c.suffix == "" {
		names = append(names, "queue_p50_ms", "queue_p99_ms")
	}
	return names
}

func openNames() []string { return []string{"open_stream_bytes", "open_stream_cpu_us"} }

func grpcNames() []string {
	names := openNames()
	for _, c := range busyCells() {
		names = append(names, c.names()...)
	}
	return names
}

// A busySample has the measurements of one run of a cell: the scheduler's CPU time per action in
// µs, and percentiles of the time from Execute to a worker in ms.
type busySample struct {
	cpu, actionsPerSecond, p50, p99 float64
}

// A grpcBench measures a scheduler in a separate process, over gRPC on 127.0.0.1.
type grpcBench struct {
	dir     string
	profile string // folder for profiles; empty: none
	load    *load.Load
}

// benchGRPC measures the rows of grpcNames.
func benchGRPC(ctx context.Context, o *report.Options) (rows []report.Row, err error) {
	dir, leave, err := report.WorkFolder(o.Data, o.Keep)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, leave()) }()
	b := &grpcBench{dir: dir, profile: o.Profile}
	if b.load, err = load.New(max(grpcWarm+grpcActions, openWarm+openStreams), 100); err != nil {
		return nil, err
	}
	report.Progress("bringing %d actions to the storage", len(b.load.Actions))
	if err := b.with(ctx, func(p *schedulerProcess) error { return b.load.Upload(ctx, p.conn) }); err != nil {
		return nil, err
	}
	for _, c := range busyCells() {
		if !o.Wants(c.names()...) {
			continue
		}
		var samples []busySample
		b.load.SkipLookup = c.skipLookup
		for i := range o.Runs {
			s, err := b.busy(ctx, c)
			if err != nil {
				return rows, err
			}
			report.Progress("run %d of grpc%s: %.0f µs, %.0f actions/s, %.0f and %.0f ms",
				i+1, c.suffix, s.cpu, s.actionsPerSecond, s.p50, s.p99)
			samples = append(samples, s)
		}
		rows = append(rows, c.rows(samples)...)
	}
	if o.Wants(openNames()...) {
		more, err := b.open(ctx)
		return append(rows, more...), err
	}
	return rows, nil
}

// rows returns the rows of names.
func (c busyCell) rows(samples []busySample) []report.Row {
	note := fmt.Sprintf("%d clients, %d workers, %d streams a connection", load.Clients, grpcWorkers, c.perConnection)
	if c.apart {
		note += ", storage in another process"
	}
	if c.skipLookup {
		note += ", no result looked up"
	}
	made := func(r report.Row, of func(s busySample) float64) report.Row {
		var values []float64
		for _, s := range samples {
			values = append(values, of(s))
		}
		v := report.Median(values)
		r.Value, r.Note = &v, fmt.Sprintf("%s; %s, %d runs", note, report.Spread(values), len(values))
		return r
	}
	rows := []report.Row{
		made(report.Row{Name: "grpc_cpu_us" + c.suffix, Unit: "µs", Wanted: "≤ 115, aim 77", Baseline: "peer 230"},
			func(s busySample) float64 { return s.cpu }),
		made(report.Row{Name: "grpc_actions_per_s" + c.suffix, Unit: "1/s", Baseline: "peer 3000"},
			func(s busySample) float64 { return s.actionsPerSecond }),
	}
	if c.suffix == "" {
		rows = append(rows,
			made(report.Row{Name: "queue_p50_ms", Unit: "ms", Baseline: "peer 211"}, func(s busySample) float64 { return s.p50 }),
			made(report.Row{Name: "queue_p99_ms", Unit: "ms", Baseline: "peer 464"}, func(s busySample) float64 { return s.p99 }))
	}
	return rows
}

// with calls use while a scheduler with some flags runs.
func (b *grpcBench) with(ctx context.Context, use func(p *schedulerProcess) error, flags ...string) error {
	p, err := startScheduler(ctx, filepath.Join(b.dir, "scheduler"), flags...)
	if err != nil {
		return err
	}
	return errors.Join(use(p), p.close())
}

// busy measures clients that each always have one action to run, and workers that run them.
func (b *grpcBench) busy(ctx context.Context, c busyCell) (s busySample, err error) {
	var flags []string
	if c.apart {
		address, stop, err := b.serveStorage()
		if err != nil {
			return s, err
		}
		defer stop()
		flags = []string{"--storage", "grpc://" + address}
	}
	err = b.with(ctx, func(p *schedulerProcess) error {
		return b.withWorkers(ctx, p, c.perConnection, func(ctx context.Context, clients []*grpc.ClientConn) error {
			s, err = b.measureBusy(ctx, p, clients, "busy"+c.suffix)
			return err
		})
	}, flags...)
	return s, err
}

func (b *grpcBench) measureBusy(
	ctx context.Context, p *schedulerProcess, clients []*grpc.ClientConn, profile string,
) (s busySample, err error) {
	if _, err := b.load.Run(ctx, clients, 0, grpcWarm); err != nil {
		return s, err
	}
	before, err := p.used(ctx)
	if err != nil {
		return s, err
	}
	if err := b.startProfile(p, profile); err != nil {
		return s, err
	}
	took, err := b.load.Run(ctx, clients, grpcWarm, grpcWarm+grpcActions)
	if err != nil {
		return s, err
	}
	after, err := p.used(ctx)
	ms := slices.Sorted(slices.Values(b.load.Latencies(grpcWarm, grpcWarm+grpcActions)))
	return busySample{
		cpu:              float64((after.CPU - before.CPU).Microseconds()) / grpcActions,
		actionsPerSecond: grpcActions / took.Seconds(),
		p50:              ms[len(ms)/2], p99: ms[len(ms)*99/100],
	}, err
}

func (b *grpcBench) startProfile(p *schedulerProcess, name string) error {
	if b.profile == "" {
		return nil
	}
	return p.profile(filepath.Join(b.profile, name))
}

// withWorkers calls use with the clients' connections while workers serve the scheduler.
func (b *grpcBench) withWorkers(
	ctx context.Context, p *schedulerProcess, perConnection int,
	use func(ctx context.Context, clients []*grpc.ClientConn) error,
) error {
	clients, closeClients, err := load.Connect(p.address, load.Clients, perConnection)
	if err != nil {
		return err
	}
	workers, closeWorkers, err := load.Connect(p.address, grpcWorkers, perConnection)
	if err != nil {
		return errors.Join(err, closeClients())
	}
	working, stop := context.WithCancel(ctx)
	g, working := errgroup.WithContext(working)
	for i := range grpcWorkers {
		g.Go(func() error { return b.load.Work(working, workers[i%len(workers)], i) })
	}
	err = use(working, clients)
	stop()
	// If the workers ended first, their error comes first because it says more than later errors.
	return errors.Join(g.Wait(), err, closeClients(), closeWorkers())
}

// serveStorage serves the actions from the memory of this process.
func (b *grpcBench) serveStorage() (address string, stop func(), err error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(casserver.MaxMessageBytes))
	load.NewStorage(b.load).Register(s)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(listener) }()
	return listener.Addr().String(), func() { s.Stop(); <-served }, nil
}
