package prefetch

import (
	"fmt"
	"strings"

	"github.com/forerunner-build/forerunner/bench/report"
)

// misfitColumns are those with a profile that is wrong.
func misfitColumns() []column { return []column{misfit, renamed, poisoned, stale} }

// misfitWorks are a large tree of which much is read, one of which little is, and some small files.
func misfitWorks() []string { return []string{workGo, workPython, workSmall} }

// misfitCells are those of rowMisfitWorst.
func misfitCells() (cells []cell) {
	for _, work := range misfitWorks() {
		for _, column := range append(misfitColumns(), none) {
			cells = append(cells, cell{work, column, farMS})
		}
	}
	return cells
}

// misfitAgainCells are those of rowMisfitAgain.
func misfitAgainCells() (cells []cell) {
	for _, work := range misfitWorks() {
		for _, column := range misfitColumns() {
			cells = append(cells, cell{work, column.again(), farMS})
		}
	}
	return cells
}

// overNone is the wait of commands in a cell, divided by their wait without a profile, base. It is
// false if one of them was not measured, or nothing waited.
func (b *prefetchBench) overNone(c cell) (ratio, base float64, ok bool) {
	with, without := b.of(c, stalled), b.of(cell{c.work, none, c.ms}, stalled)
	if len(with) == 0 || len(without) == 0 || report.Median(without) == 0 {
		return 0, 0, false
	}
	base = report.Median(without)
	return report.Median(with) / base, base, true
}

// misfit compares how long commands wait with a profile that is about something else and with none.
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

// misfitWorst is the longest wait with all that is wrong, of all works, over that without a profile.
func (b *prefetchBench) misfitWorst() report.Row {
	return b.worst(rowMisfitWorst, misfitCells()[0], ratioRow{wanted: "≤ 1.2"}, func(work string, column column) (float64, string, bool) {
		ratio, base, ok := b.overNone(cell{work, column, farMS})
		return ratio, "waited " + report.FormatSeconds(base), ok
	})
}

// misfitAgain has the most bytes over used in a second run, with what is known after a first run
// with a wrong profile.
func (b *prefetchBench) misfitAgain() report.Row {
	return b.worst(rowMisfitAgain, misfitAgainCells()[0], ratioRow{wanted: "≤ 1.15"}, func(work string, column column) (float64, string, bool) {
		c := cell{work, column.again(), farMS}
		over := b.of(c, overUsed)
		if len(over) == 0 {
			return 0, "", false
		}
		read := report.Median(b.of(c, func(s sample) float64 { return s.read }))
		return report.Median(over), fmt.Sprintf("read %.1f MB", read/1e6), true
	})
}

// worst is a row with the largest figure of all that is wrong, of all works. first is a cell that it
// needs.
func (b *prefetchBench) worst(
	name string, first cell, wanted ratioRow, figure func(work string, column column) (value float64, base string, ok bool),
) report.Row {
	worst := report.NotMeasured(name, "ratio", b.missing(first))
	var notes []string
	for _, work := range misfitWorks() {
		var said []string
		for _, column := range misfitColumns() {
			value, base, ok := figure(work, column)
			if !ok {
				said = append(said, fmt.Sprintf("%s not measured: %s", column, b.missing(cell{work, column, farMS})))
				continue
			}
			said = append(said, fmt.Sprintf("%s %s", column, report.FormatValue(value)))
			if worst.Value == nil || value > *worst.Value {
				worst = report.NewRow(name, value, "ratio")
				worst.Baseline = fmt.Sprintf("%s %s", b.works[work].name, base)
			}
		}
		notes = append(notes, work+": "+strings.Join(said, ", "))
	}
	if worst.Value != nil {
		worst.Note = strings.Join(notes, "; ")
	}
	return withTargets(worst, wanted)
}
