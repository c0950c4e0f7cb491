package prefetch

import (
	"fmt"
	"slices"

	"github.com/forerunner-build/forerunner/bench/report"
)

// The rows that are not the ratio of one cell.
const (
	rowRoundTrips  = "round_trips"
	rowBytes       = "bytes_over_used"
	rowWarmCost    = "warm_cost"
	rowMisfit      = "misfit_coarse_50ms"
	rowMisfitWorst = "misfit_worst"
	rowMisfitAgain = "misfit_again_bytes"
	rowColdCPU     = "cold_cpu_s"
)

// The distances from which the number of round trips is derived, in ms.
const (
	nearMS = 10
	farMS  = 50
)

// A ratioRow is the ratio of a cell to its warm cell.
type ratioRow struct {
	name   string
	cell   cell
	wanted string
	peer   string // the value of another implementation
	extra  bool   // only with --all or --only
}

// ratioRows returns the rows in the order of the table. Names of C++ rows begin with cxx, except
// coarse_50ms: a go build has no similar action to learn from.
func ratioRows() []ratioRow {
	rows := []ratioRow{
		{name: "exact_0ms", cell: cell{workGo, exact, 0}, peer: "1.14"},
		{name: "exact_10ms", cell: cell{workGo, exact, nearMS}, wanted: "≤ 1.08", peer: "1.42"},
		{name: "exact_50ms", cell: cell{workGo, exact, farMS}, wanted: "≤ 1.10", peer: "2.6"},
		{name: "none_50ms", cell: cell{workGo, none, farMS}, wanted: "≤ 1.5", peer: "9.3"},
		{name: "peer_50ms", cell: cell{workGo, near, farMS}},
		{name: "all_first_50ms", cell: cell{workGo, allFirst, farMS}, peer: "18.7"},
		{name: "coarse_50ms", cell: cell{workCXX, coarse, farMS}, wanted: "≤ 1.25"},
		{name: "cxx_exact_50ms", cell: cell{workCXX, exact, farMS}},
		{name: "cxx_none_50ms", cell: cell{workCXX, none, farMS}},
		{name: "cxx_all_first_50ms", cell: cell{workCXX, allFirst, farMS}},
		{name: "outside_10ms", cell: cell{workGo, outside, nearMS}, wanted: "≤ 1.08"},
		{name: "outside_50ms", cell: cell{workGo, outside, farMS}, wanted: "≤ 1.10"},
	}
	for _, work := range jobs() {
		rows = append(rows,
			ratioRow{name: work + "_50ms", cell: cell{work, exact, farMS}, wanted: "≤ 1.10"},
			ratioRow{name: work + "_first_50ms", cell: cell{work, none, farMS}, wanted: "≤ 1.5"})
	}
	for _, ms := range []int{0, 2, nearMS, farMS} {
		for _, work := range []string{workGo, workCXX} {
			for _, column := range []column{exact, coarse, none, allFirst} {
				r := ratioRow{name: fmt.Sprintf("%s_%dms", column, ms), cell: cell{work, column, ms}, extra: true}
				if work == workCXX {
					r.name = "cxx_" + r.name
				}
				known := slices.ContainsFunc(rows, func(o ratioRow) bool { return o.cell == r.cell })
				if !known && (work != workGo || column != coarse) {
					rows = append(rows, r)
				}
			}
		}
	}
	return rows
}

// A derivedRow is a row computed from several cells.
type derivedRow struct {
	name  string
	cells []cell // that it is computed from
	make  func(*prefetchBench) report.Row
}

func derivedRows() []derivedRow {
	rows := []derivedRow{
		{rowRoundTrips, []cell{{workGo, exact, nearMS}, {workGo, exact, farMS}}, (*prefetchBench).roundTrips},
		{rowBytes, []cell{{workGo, exact, farMS}}, func(b *prefetchBench) report.Row {
			return b.bytes(ratioRow{name: rowBytes, cell: cell{workGo, exact, farMS}, wanted: "≤ 1.05", peer: "1.0"})
		}},
		{rowWarmCost, nil, (*prefetchBench).warmCost},
		{rowMisfit, []cell{{workGo, misfit, farMS}, {workGo, none, farMS}}, (*prefetchBench).misfit},
		{rowMisfitWorst, misfitCells(), (*prefetchBench).misfitWorst},
		{rowMisfitAgain, misfitAgainCells(), (*prefetchBench).misfitAgain},
		{rowColdCPU, []cell{{workGo, outside, farMS}}, (*prefetchBench).coldCPU},
	}
	for _, work := range jobs() {
		r := ratioRow{name: work + "_bytes", cell: cell{work, exact, farMS}, wanted: "≤ 1.15"}
		rows = append(rows, derivedRow{r.name, []cell{r.cell}, func(b *prefetchBench) report.Row { return b.bytes(r) }})
	}
	return rows
}

func prefetchNames() (names []string) {
	for _, r := range ratioRows() {
		names = append(names, r.name)
	}
	for _, r := range derivedRows() {
		names = append(names, r.name)
	}
	return names
}

// wants reports whether a row was requested.
func (b *prefetchBench) wants(r ratioRow) bool {
	if len(b.o.Only) > 0 {
		return slices.Contains(b.o.Only, r.name)
	}
	return !r.extra || b.o.all
}

func (b *prefetchBench) wantsCost() bool { return b.o.Wants(rowWarmCost) }

// wanted returns the requested cells, each once, including those that derived rows need.
func (b *prefetchBench) wanted() (cells []cell) {
	for _, r := range ratioRows() {
		if b.wants(r) && !slices.Contains(cells, r.cell) {
			cells = append(cells, r.cell)
		}
	}
	for _, r := range derivedRows() {
		for _, c := range r.cells {
			if b.o.Wants(r.name) && !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// slow reports whether a cell is measured only once, whatever the number of runs: it takes minutes,
// and serves only as a comparison.
func slow(c cell) bool { return c.work == workCXX && (c.column == none || c.column == allFirst) }

// of returns a figure of all samples of a cell.
func (b *prefetchBench) of(c cell, figure func(sample) float64) (values []float64) {
	for _, s := range b.samples[c] {
		values = append(values, figure(s))
	}
	return values
}

// rows returns the rows to report, in the order of ratioRows and derivedRows.
func (b *prefetchBench) rows() (rows []report.Row) {
	for _, r := range ratioRows() {
		if b.wants(r) {
			rows = append(rows, b.ratio(r))
		}
	}
	for _, r := range derivedRows() {
		if b.o.Wants(r.name) {
			rows = append(rows, r.make(b))
		}
	}
	return rows
}

// missing returns why a cell has no samples.
func (b *prefetchBench) missing(c cell) string {
	switch {
	case b.lacks[c.work] != "":
		return b.lacks[c.work]
	case c.column == outside && b.lacks[string(outside)] != "":
		return b.lacks[string(outside)]
	}
	return "it failed"
}
