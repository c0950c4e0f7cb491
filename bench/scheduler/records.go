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

// A windowSample is a window: actions a second, and the scheduler's CPU time for each in µs. others is
// the share of the machine's CPU time that other programs had.
type windowSample struct{ actionsPerSecond, cpu, others float64 }

// Records measures what records of completed operations cost a scheduler that clients and workers
// call over gRPC. Each run has two schedulers, with their data in dir, whose windows alternate.
func Records(ctx context.Context, dir string, runs int) ([]report.Row, error) {
	all, err := load.New(recordsActions, 100)
	if err != nil {
		return nil, err
	}
	b := &grpcBench{dir: dir, load: all}
	var pairs [][2]windowSample // without and with records
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
		report.Progress("records over gRPC, run %d: median %.3f, %s", run+1, report.Median(ratiosOf(pairs)), report.Spread(ratiosOf(pairs)))
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
func (b *grpcBench) alternate(ctx context.Context, turns [2]turn) (pairs [][2]windowSample, err error) {
	for i := 0; (i+1)*recordsWindow <= len(b.load.Actions); i++ {
		var pair [2]windowSample
		order := []int{0, 1}
		if i%2 != 0 {
			slices.Reverse(order)
		}
		for _, which := range order {
			if pair[which], err = b.window(ctx, turns[which], i*recordsWindow); err != nil {
				return pairs, err
			}
		}
		if i >= recordsWarm {
			pairs = append(pairs, pair)
		}
	}
	return pairs, nil
}

func (b *grpcBench) window(ctx context.Context, t turn, from int) (s windowSample, err error) {
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
	return windowSample{
		others:           others,
		actionsPerSecond: recordsWindow / took.Seconds(),
		cpu:              float64((after.CPU - before.CPU).Microseconds()) / recordsWindow,
	}, err
}

func ratiosOf(pairs [][2]windowSample) (ratios []float64) {
	for _, p := range pairs {
		ratios = append(ratios, p[1].actionsPerSecond/p[0].actionsPerSecond)
	}
	return ratios
}

// undisturbed returns the pairs during which no other programs used the CPUs; all, if these are few.
func undisturbed(pairs [][2]windowSample) [][2]windowSample {
	var quiet [][2]windowSample
	for _, p := range pairs {
		if max(p[0].others, p[1].others) <= mostOthers {
			quiet = append(quiet, p)
		}
	}
	if 2*len(quiet) < len(pairs) {
		return pairs
	}
	return quiet
}

// recordsRows returns the rows of Records.
func recordsRows(all [][2]windowSample) []report.Row {
	pairs := undisturbed(all)
	many := fmt.Sprintf("%d of %d pairs", len(pairs), len(all))
	var rates, cpus [2][]float64
	var costs []float64
	for _, p := range pairs {
		for i, s := range p {
			rates[i], cpus[i] = append(rates[i], s.actionsPerSecond), append(cpus[i], s.cpu)
		}
		costs = append(costs, p[1].cpu-p[0].cpu)
	}
	ratios := ratiosOf(pairs)
	ratio := report.NewRow("records_dispatch", report.Median(ratios), "ratio")
	ratio.Wanted, ratio.Baseline = "≥ 0.98", fmt.Sprintf("%.0f actions/s", report.Median(rates[0]))
	ratio.Note = fmt.Sprintf("%.0f actions/s with records; %s, %s", report.Median(rates[1]), report.Spread(ratios), many)
	cost := report.NewRow("record_cpu_us", report.Median(costs), "µs")
	cost.Baseline = fmt.Sprintf("%.1f µs for an action without", report.Median(cpus[0]))
	cost.Note = fmt.Sprintf("%s, %s", report.Spread(costs), many)
	return []report.Row{ratio, cost}
}
