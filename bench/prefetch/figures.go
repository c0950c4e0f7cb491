package prefetch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/bench/report"
)

func seconds(s sample) float64 { return s.seconds }
func idle(s sample) float64    { return s.idle }
func stalled(s sample) float64 { return s.stalled }
func wasted(s sample) float64  { return s.wasted }
func serving(s sample) float64 { return s.serving }

// overUsed is the number of fetched bytes divided by the bytes of the opened files.
func overUsed(s sample) float64 { return s.fetched / max(s.read, 1) }

func (b *prefetchBench) ratio(r ratioRow) report.Row {
	cold, again := b.of(r.cell, seconds), b.of(r.cell.warm(), seconds)
	if len(cold) == 0 || len(again) == 0 {
		why := "no warm run to compare with"
		if len(cold) == 0 {
			why = b.missing(r.cell)
		}
		return withTargets(report.NotMeasured(r.name, "ratio", why), r)
	}
	base := report.Median(again)
	out := report.NewRow(r.name, report.Median(cold)/base, "ratio")
	out.Baseline = "warm " + report.FormatSeconds(base)
	out.Note = fmt.Sprintf("%s: %s; %s over warm, %d runs; warm %s s", b.works[r.cell.work].name,
		report.FormatSeconds(report.Median(cold)), report.Spread(scaled(cold, 1/base)), len(cold), report.Spread(again))
	return withTargets(out, r)
}

func withTargets(out report.Row, r ratioRow) report.Row {
	out.Wanted = r.wanted
	if r.peer != "" {
		out.Note += "; peer " + r.peer
	}
	return out
}

func scaled(values []float64, by float64) []float64 {
	out := slices.Clone(values)
	for i := range out {
		out[i] *= by
	}
	return out
}

// trips derives the number of sequential round trips of a go build. figure is the time that is
// compared.
func (b *prefetchBench) trips(c column, figure func(sample) float64) (float64, bool) {
	near, far := b.of(cell{workGo, c, nearMS}, figure), b.of(cell{workGo, c, farMS}, figure)
	if len(near) == 0 || len(far) == 0 {
		return 0, false
	}
	return (report.Median(far) - report.Median(near)) / (farMS - nearMS) * 1000, true
}

func (b *prefetchBench) roundTrips() report.Row {
	value, ok := b.trips(exact, idle)
	if !ok {
		return withTargets(report.NotMeasured(rowRoundTrips, "round trips", b.missing(cell{workGo, exact, farMS})),
			ratioRow{wanted: "≤ 12", peer: "about 250"})
	}
	r := report.NewRow(rowRoundTrips, value, "round trips")
	r.Wanted = "≤ 12"
	notes := []string{fmt.Sprintf("idle time at %d ms minus idle time at %d ms, divided by the difference", farMS, nearMS)}
	if all, ok := b.trips(exact, seconds); ok {
		notes = append(notes, "from the elapsed time "+report.FormatValue(all))
	}
	if waited, ok := b.trips(exact, stalled); ok {
		notes = append(notes, "from the time that the command waited "+report.FormatValue(waited))
	}
	if without, ok := b.trips(none, idle); ok {
		notes = append(notes, "without profile "+report.FormatValue(without))
	}
	if known, ok := b.trips(warm, idle); ok {
		r.Baseline = "warm " + report.FormatValue(known)
	}
	r.Note = strings.Join(append(notes, "peer about 250"), "; ")
	return r
}

// bytes compares the fetched bytes of a cell with the bytes that actions read.
func (b *prefetchBench) bytes(r ratioRow) report.Row {
	over := b.of(r.cell, overUsed)
	if len(over) == 0 {
		return withTargets(report.NotMeasured(r.name, "ratio", b.missing(r.cell)), r)
	}
	out := report.NewRow(r.name, report.Median(over), "ratio")
	read := report.Median(b.of(r.cell, func(s sample) float64 { return s.read }))
	out.Baseline = fmt.Sprintf("%.1f MB read", read/1e6)
	out.Note = fmt.Sprintf("%s, %d runs; sent by the storage %s of the bytes read", report.Spread(over), len(over),
		report.FormatValue(report.Median(b.of(r.cell, func(s sample) float64 { return s.wire }))/max(read, 1)))
	if without := b.of(cell{r.cell.work, none, r.cell.ms}, overUsed); len(without) > 0 {
		out.Note += "; without profile " + report.FormatValue(report.Median(without))
	}
	return withTargets(out, r)
}

// coldCPU is the additional CPU time of a worker for an action with an empty store, compared with
// running the same action again.
func (b *prefetchBench) coldCPU() report.Row {
	c, wanted := cell{workGo, outside, farMS}, ratioRow{wanted: "≤ 0.8"}
	cold, again := b.of(c, serving), b.of(c.warm(), serving)
	if len(cold) == 0 || len(cold) != len(again) {
		return withTargets(report.NotMeasured(rowColdCPU, "s", b.missing(c)), wanted)
	}
	var more []float64
	for i := range cold {
		more = append(more, cold[i]-again[i])
	}
	r := report.NewRow(rowColdCPU, report.Median(more), "s")
	r.Baseline = "warm " + report.FormatSeconds(report.Median(again))
	r.Note = fmt.Sprintf("cold %s; %s, %d runs", report.FormatSeconds(report.Median(cold)), report.Spread(more), len(more))
	return withTargets(r, wanted)
}
