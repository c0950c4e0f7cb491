package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/forerunner-build/forerunner/farm/console"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/printable"
)

// A column is one of a list of operations or builds.
type column struct {
	title string
	// rank says what is left out first on a narrow terminal: the column with the greatest rank. Those
	// of rank 0 always stay.
	rank int
	// least is the width to which it may be shortened; 0: it never is. Beyond enough, it gets only what
	// the others leave.
	least, enough int
	// isEnd: the end of a longer text is shown, which says more than its beginning.
	isEnd bool
}

// gap is the number of spaces between two columns.
const gap = 2

// columns returns the width of the terminal on which a call prints; 0: it is no terminal.
func (c *adminCall) columns() int {
	if f, ok := c.terminal.(*os.File); ok && logline.IsTerminal(f) {
		return console.ColumnsOf(f)
	}
	return 0
}

// printColumns prints rows below the titles of their columns. If width is not 0 no line is wider, as
// long as there is room for the columns that always stay.
func printColumns(out io.Writer, columns []column, rows [][]string, width int) error {
	w := tabwriter.NewWriter(out, 0, 0, gap, ' ', 0)
	titles := make([]string, len(columns))
	for i, of := range columns {
		titles[i] = of.title
	}
	rows = slices.Insert(slices.Clone(rows), 0, titles)
	if width == 0 {
		for _, row := range rows {
			fmt.Fprintln(w, strings.Join(row, "\t"))
		}
		return w.Flush()
	}
	widths := fitted(columns, rows, width)
	for _, row := range rows {
		var line strings.Builder
		for i, of := range columns {
			if widths[i] == 0 {
				continue
			}
			text := printable.First(row[i], widths[i])
			if of.isEnd {
				text = printable.Last(row[i], widths[i])
			}
			line.WriteString(printable.Padded(text, widths[i]+gap))
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// fitted returns the width of each column; 0: it is left out.
func fitted(columns []column, rows [][]string, width int) []int {
	wanted, widths := make([]int, len(columns)), make([]int, len(columns))
	left := width + gap
	byRank := make([]int, len(columns))
	for i, of := range columns {
		byRank[i] = i
		for _, row := range rows {
			wanted[i] = max(wanted[i], printable.Columns(row[i]))
		}
		widths[i] = wanted[i]
		if of.least > 0 {
			widths[i] = min(wanted[i], of.least)
		}
		left -= widths[i] + gap
	}
	slices.SortStableFunc(byRank, func(a, b int) int { return columns[a].rank - columns[b].rank })
	for _, i := range slices.Backward(byRank) {
		if left < 0 && columns[i].rank > 0 {
			left += widths[i] + gap
			widths[i], wanted[i] = 0, 0
		}
	}
	grow := func(i, to int) {
		more := max(min(left, to-widths[i]), 0)
		widths[i] += more
		left -= more
	}
	for _, i := range byRank {
		grow(i, min(wanted[i], cmp.Or(columns[i].enough, wanted[i])))
	}
	for _, i := range byRank {
		grow(i, wanted[i])
	}
	return widths
}
