package prefetch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/vfs"
)

const (
	// warmPairs is the number of pairs of warm builds in one run.
	warmPairs = 5
	// afterBuild is the time for a worker to learn from a build before the next one.
	afterBuild = 200 * time.Millisecond
	// costLabel is the platform property that distinguishes the workers.
	costLabel = "bench"
)

// A pairCost has the costs of two consecutive warm builds, one on a worker without recorder and
// prefetcher, one with them.
type pairCost struct{ plain, with buildCost }

// A buildCost is the cost of one build, in seconds.
type buildCost struct {
	wall    float64
	command float64 // CPU time of the command
	serving float64 // CPU time of the worker process
}

func (c buildCost) cpu() float64 { return c.command + c.serving }

// cost runs pairs of warm builds. Two workers exist at the same time and alternate, so that a pair
// meets the same state of the machine. The order changes from pair to pair.
func (b *prefetchBench) cost(ctx context.Context, run int) error {
	if !b.wantsCost() {
		return nil
	}
	work := *b.works[workGo].actions[0]
	var settings []testbed.Setting
	for _, name := range []string{"plain", "with"} {
		settings = append(settings, testbed.Setting{
			Method: vfs.FUSE, Slots: 1, Plain: name == "plain", Platform: client.Properties{costLabel + "=" + name},
		})
	}
	return b.farm.WithWorkers(ctx, settings, func(far []*testbed.Proxy) error {
		build := func(on int) (c buildCost, err error) {
			a := work
			a.Platform = settings[on].Platform
			before := report.CPUTime()
			s, _, err := once(ctx, b.farm.Client, 1, []*testbed.Action{&a}, far[on])
			if err != nil {
				return c, err
			}
			if err := pause.For(ctx, afterBuild); err != nil {
				return c, err
			}
			return buildCost{wall: s.seconds, command: s.cpu, serving: (report.CPUTime() - before).Seconds()}, nil
		}
		for pair := -1; pair < warmPairs; pair++ { // the first pair fills the caches
			var c [2]buildCost
			first := (run + pair + 2) % 2
			for _, on := range []int{first, 1 - first} {
				var err error
				if c[on], err = build(on); err != nil {
					return err
				}
			}
			if pair >= 0 {
				b.costs = append(b.costs, pairCost{plain: c[0], with: c[1]})
			}
		}
		report.Progress("run %d of %d, warm, with recorder and prefetcher relative to without: %s", run+1, b.o.Runs,
			report.FormatValue(report.Median(b.shares(wallShare))))
		return nil
	})
}

// cpuShare and the following functions return the additional cost of a build with recorder and
// prefetcher, as a share.
func cpuShare(c pairCost) float64     { return c.with.cpu()/c.plain.cpu() - 1 }
func wallShare(c pairCost) float64    { return c.with.wall/c.plain.wall - 1 }
func servingShare(c pairCost) float64 { return (c.with.serving - c.plain.serving) / c.plain.cpu() }

// shares returns a figure of all pairs.
func (b *prefetchBench) shares(figure func(pairCost) float64) (shares []float64) {
	for _, c := range b.costs {
		shares = append(shares, figure(c))
	}
	return shares
}

// middle returns an interval that contains the median with a probability of at least 95 %, whatever
// the distribution. With too few values it returns the whole range.
func middle(values []float64) string {
	sorted := slices.Sorted(slices.Values(values))
	n, left := len(sorted), 0
	// left is the number of values to omit at each end: with n fair coins, at most left heads have
	// a probability of at most 2.5 %.
	chance, sum := 1.0, 1.0
	for range n {
		chance /= 2
	}
	sum = chance
	for sum <= 0.025 {
		left++
		chance *= float64(n-left+1) / float64(left)
		sum += chance
	}
	left = max(left-1, 0)
	return report.FormatValue(sorted[left]) + "–" + report.FormatValue(sorted[n-1-left])
}

func (b *prefetchBench) warmCost() report.Row {
	if len(b.costs) == 0 {
		return withTargets(report.NotMeasured(rowWarmCost, "share", "it failed"), ratioRow{wanted: "≤ 0.01"})
	}
	var plain []buildCost
	for _, c := range b.costs {
		plain = append(plain, c.plain)
	}
	of := func(figure func(buildCost) float64) float64 {
		var values []float64
		for _, c := range plain {
			values = append(values, figure(c))
		}
		return report.Median(values)
	}
	cpu, wall, serving := b.shares(cpuShare), b.shares(wallShare), b.shares(servingShare)
	r := report.NewRow(rowWarmCost, report.Median(cpu), "share")
	r.Wanted = "≤ 0.01"
	r.Baseline = fmt.Sprintf("without %s of CPU in %s", report.FormatSeconds(of(buildCost.cpu)),
		report.FormatSeconds(of(func(c buildCost) float64 { return c.wall })))
	r.Note = fmt.Sprintf("CPU of command and serving process, median of %d pairs, %s with 95 %%; elapsed time %s, %s; the serving process alone %s, %s",
		len(cpu), middle(cpu), report.FormatValue(report.Median(wall)), middle(wall), report.FormatValue(report.Median(serving)), middle(serving))
	return r
}
