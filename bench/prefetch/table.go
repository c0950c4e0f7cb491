package prefetch

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/bench/report"
)

// printCells prints all measurements, in seconds and MB.
func (b *prefetchBench) printCells(w io.Writer) error {
	table := [][]string{{"work", "round trip", "inputs", "time", "runs", "over warm", "waited", "fetched", "on the wire", "read", "wasted", "foreseen", "profile"}}
	for _, m := range makers() {
		for _, ms := range []int{0, 2, nearMS, farMS} {
			for _, column := range columns() {
				if c := (cell{m.work, column, ms}); len(b.samples[c]) > 0 {
					table = append(table, b.cells(c))
				}
			}
		}
	}
	for _, m := range makers() {
		if have := b.works[m.work]; have != nil {
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
	if again := b.of(c.warm(), seconds); len(again) > 0 {
		over = report.FormatValue(report.Median(took) / report.Median(again))
	}
	mb := func(figure func(sample) float64) string { return fmt.Sprintf("%.1f MB", middle(figure)/1e6) }
	cells := []string{
		b.works[c.work].name, fmt.Sprintf("%d ms", c.ms), strings.ReplaceAll(string(c.column), "_", " "),
		report.FormatSeconds(report.Median(took)), report.Spread(took), over,
	}
	if c.column == allFirst { // hard links cannot show reads
		return append(cells, "–", "–", mb(func(s sample) float64 { return s.wire }), "–", "–", "–", "–")
	}
	return append(cells, report.FormatSeconds(middle(stalled)),
		mb(func(s sample) float64 { return s.fetched }), mb(func(s sample) float64 { return s.wire }),
		mb(func(s sample) float64 { return s.read }),
		mb(wasted),
		fmt.Sprintf("%.0f of %.0f", middle(func(s sample) float64 { return s.hitFiles }),
			middle(func(s sample) float64 { return s.hitFiles + s.missedFiles })),
		origins(b.samples[c][0].profiles))
}

// origins lists the profiles of the actions in a sample.
func origins(counts map[string]int) string {
	var said []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		said = append(said, fmt.Sprintf("%d %s", counts[name], name))
	}
	return strings.Join(said, ", ")
}
