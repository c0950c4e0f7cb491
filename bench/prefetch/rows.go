package prefetch

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/bench/report"
)

// The rows that are not the ratio of one cell.
const (
	rowRoundTrips = "round_trips"
	rowBytes      = "bytes_over_used"
	rowWarmCost   = "warm_cost"
	rowMisfit     = "misfit_coarse_50ms"
)

// The distances from which round trips are derived, in ms.
const (
	nearMS = 10
	farMS  = 50
)

// A ratioRow is a row that says how much longer a cell takes than a warm one.
type ratioRow struct {
	name   string
	cell   cell
	wanted string
	peer   string // what another implementation took
	extra  bool   // measured on demand only
}

// ratioRows are in the order of the table. Names of C++ rows begin with cxx, except
// coarse_50ms: a single go build has nobody to learn from.
func ratioRows() []ratioRow {
	rows := []ratioRow{
		{name: "exact_0ms", cell: cell{workGo, exact, 0}, peer: "1.14"},
		{name: "exact_10ms", cell: cell{workGo, exact, nearMS}, wanted: "≤ 1.15", peer: "1.42"},
		{name: "exact_50ms", cell: cell{workGo, exact, farMS}, wanted: "≤ 1.4", peer: "2.6"},
		{name: "none_50ms", cell: cell{workGo, none, farMS}, wanted: "≤ 3", peer: "9.3"},
		{name: "neighbour_50ms", cell: cell{workGo, near, farMS}},
		{name: "all_first_50ms", cell: cell{workGo, allFirst, farMS}, peer: "18.7"},
		{name: "coarse_50ms", cell: cell{workCXX, coarse, farMS}},
		{name: "cxx_exact_50ms", cell: cell{workCXX, exact, farMS}},
		{name: "cxx_none_50ms", cell: cell{workCXX, none, farMS}},
		{name: "cxx_all_first_50ms", cell: cell{workCXX, allFirst, farMS}},
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

func prefetchNames() (names []string) {
	for _, r := range ratioRows() {
		names = append(names, r.name)
	}
	return append(names, rowRoundTrips, rowBytes, rowWarmCost, rowMisfit)
}

// wants reports whether a row is to be shown.
func (b *prefetchBench) wants(r ratioRow) bool {
	if len(b.o.Only) > 0 {
		return slices.Contains(b.o.Only, r.name)
	}
	return !r.extra || b.o.all
}

func (b *prefetchBench) wantsCost() bool { return b.o.Wants(rowWarmCost) }

// wanted are the cells to be measured, with those that other rows derive from.
func (b *prefetchBench) wanted() (cells []cell) {
	for _, r := range ratioRows() {
		derives := r.cell.work == workGo && r.cell.column == exact &&
			(b.o.Wants(rowRoundTrips) && r.cell.ms >= nearMS || b.o.Wants(rowBytes) && r.cell.ms == farMS)
		if b.wants(r) || derives {
			cells = append(cells, r.cell)
		}
	}
	if b.o.Wants(rowMisfit) {
		for _, c := range []cell{{workGo, misfit, farMS}, {workGo, none, farMS}} {
			if !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// slow reports whether a cell is measured once only, however many runs there are:
// it takes minutes, and is there to be compared with.
func slow(c cell) bool { return c.work == workCXX && (c.column == none || c.column == allFirst) }

// of returns one figure of all samples of a cell.
func (b *prefetchBench) of(c cell, figure func(sample) float64) (values []float64) {
	for _, s := range b.samples[c] {
		values = append(values, figure(s))
	}
	return values
}

func seconds(s sample) float64 { return s.seconds }

// rows makes what is reported, in the order of ratioRows.
func (b *prefetchBench) rows() (rows []report.Row) {
	for _, r := range ratioRows() {
		if b.wants(r) {
			rows = append(rows, b.ratio(r))
		}
	}
	for _, derived := range []func() report.Row{b.roundTrips, b.bytes, b.warmCost, b.misfit} {
		if r := derived(); b.o.Wants(r.Name) {
			rows = append(rows, r)
		}
	}
	return rows
}

// missing says why a cell has no samples.
func (b *prefetchBench) missing(c cell) string {
	if b.lacks[c.work] != "" {
		return b.lacks[c.work]
	}
	return "it failed"
}

func (b *prefetchBench) ratio(r ratioRow) report.Row {
	cold, again := b.of(r.cell, seconds), b.of(cell{r.cell.work, warm, r.cell.ms}, seconds)
	if len(cold) == 0 || len(again) == 0 {
		why := "no warm run beside it"
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

// trips derives how many round trips a go build waits for one after another.
// Figure is the time that is compared.
func (b *prefetchBench) trips(c column, figure func(sample) float64) (float64, bool) {
	near, far := b.of(cell{workGo, c, nearMS}, figure), b.of(cell{workGo, c, farMS}, figure)
	if len(near) == 0 || len(far) == 0 {
		return 0, false
	}
	return (report.Median(far) - report.Median(near)) / (farMS - nearMS) * 1000, true
}

func idle(s sample) float64 { return s.idle }

func (b *prefetchBench) roundTrips() report.Row {
	value, ok := b.trips(exact, idle)
	if !ok {
		return withTargets(report.NotMeasured(rowRoundTrips, "round trips", b.missing(cell{workGo, exact, farMS})),
			ratioRow{wanted: "≤ 12", peer: "about 250"})
	}
	r := report.NewRow(rowRoundTrips, value, "round trips")
	r.Wanted = "≤ 12"
	notes := []string{fmt.Sprintf("time in which the command did not run at %d ms less that at %d ms, over the difference", farMS, nearMS)}
	if all, ok := b.trips(exact, seconds); ok {
		notes = append(notes, "of the whole time "+report.FormatValue(all))
	}
	if waited, ok := b.trips(exact, func(s sample) float64 { return s.stalled }); ok {
		notes = append(notes, "of the time that the command waited "+report.FormatValue(waited))
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

// misfit compares how long commands wait with a profile that is about something else and with none.
func (b *prefetchBench) misfit() report.Row {
	const wanted = "≤ 1.2"
	stalled := func(s sample) float64 { return s.stalled }
	with, without := b.of(cell{workGo, misfit, farMS}, stalled), b.of(cell{workGo, none, farMS}, stalled)
	if len(with) == 0 || len(without) == 0 || report.Median(without) == 0 {
		return withTargets(report.NotMeasured(rowMisfit, "ratio", b.missing(cell{workGo, misfit, farMS})), ratioRow{wanted: wanted})
	}
	base := report.Median(without)
	r := report.NewRow(rowMisfit, report.Median(with)/base, "ratio")
	r.Wanted, r.Baseline = wanted, "waited "+report.FormatSeconds(base)
	r.Note = fmt.Sprintf("waited %s, %d runs; %.1f MB were prefetched and not read, without a profile %.1f MB", report.Spread(with), len(with),
		report.Median(b.of(cell{workGo, misfit, farMS}, func(s sample) float64 { return s.wasted }))/1e6,
		report.Median(b.of(cell{workGo, none, farMS}, func(s sample) float64 { return s.wasted }))/1e6)
	return r
}

func (b *prefetchBench) bytes() report.Row {
	far := cell{workGo, exact, farMS}
	over := b.of(far, func(s sample) float64 { return s.fetched / max(s.read, 1) })
	if len(over) == 0 {
		return withTargets(report.NotMeasured(rowBytes, "ratio", b.missing(far)), ratioRow{wanted: "≤ 1.05", peer: "1.0"})
	}
	r := report.NewRow(rowBytes, report.Median(over), "ratio")
	r.Wanted = "≤ 1.05"
	read := report.Median(b.of(far, func(s sample) float64 { return s.read }))
	r.Baseline = fmt.Sprintf("%.1f MB read", read/1e6)
	r.Note = fmt.Sprintf("%s, %d runs; on the wire %s of what was read; peer 1.0", report.Spread(over), len(over),
		report.FormatValue(report.Median(b.of(far, func(s sample) float64 { return s.wire }))/max(read, 1)))
	if without := b.of(cell{workGo, none, farMS}, func(s sample) float64 { return s.fetched / max(s.read, 1) }); len(without) > 0 {
		r.Note += "; without profile " + report.FormatValue(report.Median(without))
	}
	return r
}

// printCells writes all that was measured, in seconds and MB.
func (b *prefetchBench) printCells(w io.Writer) error {
	table := [][]string{{"work", "round trip", "inputs", "time", "runs", "over warm", "waited", "fetched", "on the wire", "read", "wasted", "foreseen", "profile"}}
	for _, work := range []string{workGo, workCXX} {
		for _, ms := range []int{0, 2, nearMS, farMS} {
			for _, column := range []column{allFirst, none, near, coarse, exact, warm} {
				if c := (cell{work, column, ms}); len(b.samples[c]) > 0 {
					table = append(table, b.cells(c))
				}
			}
		}
	}
	for _, work := range []string{workGo, workCXX} {
		if have := b.works[work]; have != nil {
			if _, err := fmt.Fprintf(w, "\n%s: %s", have.name, have.note); err != nil {
				return err
			}
		}
	}
	if _, err := fmt.Fprint(w, "\n\n"); err != nil {
		return err
	}
	return report.PrintTable(w, table)
}

func (b *prefetchBench) cells(c cell) []string {
	took := b.of(c, seconds)
	middle := func(figure func(sample) float64) float64 { return report.Median(b.of(c, figure)) }
	over := "–"
	if again := b.of(cell{c.work, warm, c.ms}, seconds); len(again) > 0 {
		over = report.FormatValue(report.Median(took) / report.Median(again))
	}
	mb := func(figure func(sample) float64) string { return fmt.Sprintf("%.1f MB", middle(figure)/1e6) }
	cells := []string{
		b.works[c.work].name, fmt.Sprintf("%d ms", c.ms), strings.ReplaceAll(string(c.column), "_", " "),
		report.FormatSeconds(report.Median(took)), report.Spread(took), over,
	}
	if c.column == allFirst { // hard links do not know what is read
		return append(cells, "–", "–", mb(func(s sample) float64 { return s.wire }), "–", "–", "–", "–")
	}
	return append(cells, report.FormatSeconds(middle(func(s sample) float64 { return s.stalled })),
		mb(func(s sample) float64 { return s.fetched }), mb(func(s sample) float64 { return s.wire }),
		mb(func(s sample) float64 { return s.read }),
		mb(func(s sample) float64 { return s.wasted }),
		fmt.Sprintf("%.0f of %.0f", middle(func(s sample) float64 { return s.hitFiles }),
			middle(func(s sample) float64 { return s.hitFiles + s.missedFiles })),
		origins(b.samples[c][0].profiles))
}

// origins says which profiles the actions of a sample had.
func origins(counts map[string]int) string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		said = append(said, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(said, ", ")
}
