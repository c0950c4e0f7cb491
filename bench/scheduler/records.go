package scheduler

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/bench/load"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/pause"
)

const (
	recordsActions = 80_000
	// One of the schedulers keeps no records. Windows have so many actions.
	recordsWindow = 4_000
	recordsWarm   = 3 // windows that are not measured
	// recordsRest follows each window: what the scheduler writes later does not disturb the other.
	recordsRest = 700 * time.Millisecond
	// mostOthers is the share of the machine's CPU time that other programs may have in a window; the
	// kernel has its part.
	mostOthers = 0.2
)

// A turn is one scheduler during its windows.
type turn struct {
	process *schedulerProcess
	clients []*grpc.ClientConn
}

// Records measures what records of completed operations cost a scheduler that clients and workers
// call over gRPC. Each run has two schedulers, with their data in dir, whose windows alternate.
func Records(ctx context.Context, dir string, runs int) ([]report.Row, error) {
	all, err := load.New(recordsActions, 100)
	if err != nil {
		return nil, err
	}
	b := &grpcBench{dir: dir, load: all}
	var pairs report.Pairs // without and with records
	for run := range runs {
		err := b.beside(ctx, "without", func(ctx context.Context, without turn) error {
			return b.beside(ctx, "with", func(ctx context.Context, with turn) error {
				more, err := b.alternate(ctx, [2]turn{without, with})
				pairs = append(pairs, more...)
				return err
			})
		}, "--keep-records", "0s")
		if err != nil {
			return nil, err
		}
		report.Progress("records over gRPC, run %d: median %.3f, %s", run+1, report.Median(pairs.Ratios()), report.Spread(pairs.Ratios()))
	}
	return recordsRows(pairs), nil
}

// beside calls use while a scheduler with some flags and its workers run beside others.
func (b *grpcBench) beside(ctx context.Context, name string, use func(context.Context, turn) error, flags ...string) error {
	one := *b
	one.dir = filepath.Join(b.dir, name)
	if err := os.MkdirAll(one.dir, 0o700); err != nil {
		return err
	}
	return one.with(ctx, func(p *schedulerProcess) error {
		if err := one.load.Upload(ctx, p.conn); err != nil {
			return err
		}
		return one.withWorkers(ctx, p, 20, func(ctx context.Context, clients []*grpc.ClientConn) error {
			return use(ctx, turn{p, clients})
		})
	}, flags...)
}

// alternate gives each scheduler all actions, a window each in turn.
func (b *grpcBench) alternate(ctx context.Context, turns [2]turn) (pairs report.Pairs, err error) {
	for i := 0; (i+1)*recordsWindow <= len(b.load.Actions); i++ {
		var measured [2]report.Turn
		order := []int{0, 1}
		if i%2 != 0 {
			slices.Reverse(order)
		}
		for _, which := range order {
			if measured[which], err = b.window(ctx, turns[which], i*recordsWindow); err != nil {
				return pairs, err
			}
		}
		if i >= recordsWarm {
			pairs = append(pairs, report.Pair{Without: measured[0], With: measured[1]})
		}
	}
	return pairs, nil
}

func (b *grpcBench) window(ctx context.Context, t turn, from int) (s report.Turn, err error) {
	use := report.NewCPUUse()
	before, err := t.process.used(ctx)
	if err != nil {
		return s, err
	}
	took, err := b.load.Run(ctx, t.clients, from, from+recordsWindow)
	if err != nil {
		return s, err
	}
	busy, err := t.process.used(ctx)
	if err != nil {
		return s, err
	}
	others := use.OthersThan(busy.CPU - before.CPU)
	if err := pause.For(ctx, recordsRest); err != nil {
		return s, err
	}
	after, err := t.process.used(ctx)
	return report.Turn{
		Rate:   recordsWindow / took.Seconds(),
		CPU:    float64((after.CPU - before.CPU).Microseconds()) / recordsWindow,
		Others: others,
	}, err
}

// undisturbed returns the pairs during which no other programs used the CPUs; all, if these are few.
func undisturbed(pairs report.Pairs) report.Pairs {
	var quiet report.Pairs
	for _, p := range pairs {
		if p.Others() <= mostOthers {
			quiet = append(quiet, p)
		}
	}
	if 2*len(quiet) < len(pairs) {
		return pairs
	}
	return quiet
}

// recordsRows returns the rows of Records.
func recordsRows(all report.Pairs) []report.Row {
	pairs := undisturbed(all)
	many := fmt.Sprintf("%d of %d pairs", len(pairs), len(all))
	ratio := pairs.Ratio("records_dispatch", "records", many)
	ratio.Wanted = "≥ 0.98"
	return []report.Row{ratio, pairs.Cost("record_cpu_us", many)}
}
