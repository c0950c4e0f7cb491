package prefetch

import (
	"fmt"
	"strings"

	"github.com/forerunner-build/forerunner/bench/report"
)

// misfitColumns returns the columns with a wrong profile.
func misfitColumns() []column { return []column{misfit, renamed, poisoned, stale} }

// misfitWorks returns a large tree of which actions read much, one of which they read little, and
// some small files.
func misfitWorks() []string { return []string{workGo, workPython, workSmall} }

// misfitCells returns the cells of rowMisfitWorst.
func misfitCells() (cells []cell) {
	for _, work := range misfitWorks() {
		for _, column := range append(misfitColumns(), none) {
			cells = append(cells, cell{work, column, farMS})
		}
	}
	return cells
}

// overNone returns how long commands wait in a cell, divided by base, their wait without a profile.
// It returns false if one of them was not measured, or nothing waited.
func (b *prefetchBench) overNone(c cell) (ratio, base float64, ok bool) {
	with, without := b.of(c, stalled), b.of(cell{c.work, none, c.ms}, stalled)
	if len(with) == 0 || len(without) == 0 || report.Median(without) == 0 {
		return 0, 0, false
	}
	base = report.Median(without)
	return report.Median(with) / base, base, true
}

// misfit compares how long commands wait with another program's profile and without a profile.
func (b *prefetchBench) misfit() report.Row {
	c, wanted := cell{workGo, misfit, farMS}, ratioRow{wanted: "≤ 1.2"}
	ratio, base, ok := b.overNone(c)
	if !ok {
		return withTargets(report.NotMeasured(rowMisfit, "ratio", b.missing(c)), wanted)
	}
	r := report.NewRow(rowMisfit, ratio, "ratio")
	r.Baseline = "waited " + report.FormatSeconds(base)
	r.Note = fmt.Sprintf("waited %s, %d runs; %.1f MB were prefetched and not read, without a profile %.1f MB",
		report.Spread(b.of(c, stalled)), len(b.samples[c]),
		report.Median(b.of(c, wasted))/1e6, report.Median(b.of(cell{workGo, none, farMS}, wasted))/1e6)
	return withTargets(r, wanted)
}

// misfitWorst is the worst ratio of all wrong profiles and workloads.
func (b *prefetchBench) misfitWorst() report.Row {
	wanted := ratioRow{wanted: "≤ 1.2"}
	worst := report.NotMeasured(rowMisfitWorst, "ratio", b.missing(misfitCells()[0]))
	var notes []string
	for _, work := range misfitWorks() {
		var said []string
		for _, column := range misfitColumns() {
			c := cell{work, column, farMS}
			ratio, base, ok := b.overNone(c)
			if !ok {
				said = append(said, fmt.Sprintf("%s not measured: %s", column, b.missing(c)))
				continue
			}
			said = append(said, fmt.Sprintf("%s %s", column, report.FormatValue(ratio)))
			if worst.Value == nil || ratio > *worst.Value {
				worst = report.NewRow(rowMisfitWorst, ratio, "ratio")
				worst.Baseline = fmt.Sprintf("%s waited %s", b.works[work].name, report.FormatSeconds(base))
			}
		}
		notes = append(notes, work+": "+strings.Join(said, ", "))
	}
	if worst.Value != nil {
		worst.Note = strings.Join(notes, "; ")
	}
	return withTargets(worst, wanted)
}
