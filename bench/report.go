package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A row is one result. Names and units stay the same over time.
type row struct {
	Name     string   `json:"name"`
	Value    *float64 `json:"value"` // nil: not measured, and Note says why
	Unit     string   `json:"unit"`
	Baseline string   `json:"baseline"` // what Value is compared with; may be empty
	Note     string   `json:"note"`
	wanted   string   // by the issue that asked for the row; for people only
}

func newRow(name string, value float64, unit string) row {
	return row{Name: name, Value: &value, Unit: unit}
}

// notMeasured is the row of something that this machine lacks.
func notMeasured(name, unit, why string) row {
	return row{Name: name, Unit: unit, Note: "not measured: " + why}
}

// printRows writes a Markdown table whose columns line up.
func printRows(w io.Writer, rows []row) error {
	table := [][]string{{"row", "value", "unit", "wanted", "baseline", "note"}}
	for _, r := range rows {
		value := "–"
		if r.Value != nil {
			value = formatValue(*r.Value)
		}
		table = append(table, []string{r.Name, value, r.Unit, r.wanted, r.Baseline, r.Note})
	}
	return printTable(w, table)
}

// printTable writes rows of cells, the first of them the head, as Markdown.
func printTable(w io.Writer, table [][]string) error {
	widths := make([]int, len(table[0]))
	for _, cells := range table {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	rule := make([]string, len(widths))
	for i, n := range widths {
		rule[i] = strings.Repeat("-", n)
	}
	table = slices.Insert(table, 1, rule)
	var errs []error
	for _, cells := range table {
		for i, c := range cells {
			_, err := fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)))
			errs = append(errs, err)
		}
		_, err := fmt.Fprintln(w, "|")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// formatValue keeps three digits that say something.
func formatValue(v float64) string {
	switch {
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// writeRows writes rows to the file dir/name as a JSON list, in one go.
func writeRows(dir, name string, rows []row) error {
	text, err := json.MarshalIndent(rows, "", "  ")
	if err != nil {
		return fmt.Errorf("encode rows: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	return nil
}

// median returns the middle of values, of which there must be one at least.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread tells the smallest and the largest of values.
func spread(values []float64) string {
	return formatValue(slices.Min(values)) + "–" + formatValue(slices.Max(values))
}

// formatSeconds writes a duration given in seconds.
func formatSeconds(s float64) string {
	if s < 1 {
		return formatValue(s*1000) + " ms"
	}
	return formatValue(s) + " s"
}
