package scheduler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/report"
)

const (
	openStreams       = 80_000 // all from one address, which may have half of the calls that 24 GiB allow
	openWarm          = 1_000  // before the measured ones
	openPerConnection = 100    // Bazel's default
)

// open measures the cost of queued operations, each with a client's open stream.
func (b *grpcBench) open(ctx context.Context) (rows []report.Row, err error) {
	report.Progress("queueing %d operations", openStreams)
	err = b.with(ctx, func(p *schedulerProcess) error {
		conns, closeConns, err := load.Connect(p.address, openStreams, openPerConnection)
		if err != nil {
			return err
		}
		ctx, stop := context.WithCancel(ctx)
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return b.load.Hang(ctx, p.conn) })
		rows, err = b.measureOpen(ctx, p, conns)
		stop()
		return errors.Join(g.Wait(), err, closeConns())
	})
	return rows, err
}

func (b *grpcBench) measureOpen(ctx context.Context, p *schedulerProcess, conns []*grpc.ClientConn) ([]report.Row, error) {
	// Open every connection before measuring.
	if err := b.load.Queue(ctx, conns, 0, openWarm); err != nil {
		return nil, err
	}
	before, err := p.used(ctx)
	if err != nil {
		return nil, err
	}
	if err := b.startProfile(p, "open"); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.load.Queue(ctx, conns, openWarm, openWarm+openStreams); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := p.used(ctx)
	if err != nil {
		return nil, err
	}
	bytes := report.NewRow("open_stream_bytes", (after.Resident-before.Resident)/openStreams, "B")
	bytes.Wanted, bytes.Baseline = "≤ 16384", "peer 40 KiB"
	bytes.Note = fmt.Sprintf("resident memory for each of %d queued operations with its Execute stream, "+
		"%d streams a connection; of it stacks %.0f, live heap %.0f", openStreams, openPerConnection,
		(after.Stack-before.Stack)/openStreams, (after.Live-before.Live)/openStreams)
	cpu := report.NewRow("open_stream_cpu_us", float64((after.CPU-before.CPU).Microseconds())/openStreams, "µs")
	cpu.Baseline = "peer 235"
	cpu.Note = fmt.Sprintf("the scheduler's CPU to queue each of them; %.0f a second", openStreams/took.Seconds())
	return []report.Row{bytes, cpu}, nil
}
