package report

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
	"time"
	"unicode/utf8"
)

// A Row is one result. Its name and unit never change between versions.
type Row struct {
	Name     string   `json:"name"`
	Value    *float64 `json:"value"` // nil: not measured; Note says why
	Unit     string   `json:"unit"`
	Baseline string   `json:"baseline"` // the value that Value is compared with; may be empty
	Note     string   `json:"note"`
	Wanted   string   `json:"-"` // the goal; only in the table, not in JSON
}

// NewRow returns a row that was measured.
func NewRow(name string, value float64, unit string) Row {
	return Row{Name: name, Value: &value, Unit: unit}
}

// NotMeasured returns the row of a measurement that this machine cannot make.
func NotMeasured(name, unit, why string) Row {
	return Row{Name: name, Unit: unit, Note: "not measured: " + why}
}

// Print writes a Markdown table with aligned columns.
func Print(w io.Writer, rows []Row) error {
	table := [][]string{{"row", "value", "unit", "wanted", "baseline", "note"}}
	for _, r := range rows {
		value := "–"
		if r.Value != nil {
			value = FormatValue(*r.Value)
		}
		table = append(table, []string{r.Name, value, r.Unit, r.Wanted, r.Baseline, r.Note})
	}
	return PrintTable(w, table)
}

// PrintTable writes rows of cells as a Markdown table; the first row is the head.
func PrintTable(w io.Writer, table [][]string) error {
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

// FormatValue formats a value with three significant digits.
func FormatValue(v float64) string {
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

// Write writes rows to the file dir/name as a JSON list. It replaces the file atomically.
func Write(dir, name string, rows []Row) error {
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

// Median returns the median of values, which must not be empty.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Spread returns the smallest and the largest of values as text.
func Spread(values []float64) string {
	return FormatValue(slices.Min(values)) + "–" + FormatValue(slices.Max(values))
}

// Milliseconds returns a duration in ms.
func Milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// FormatSeconds formats a duration in seconds.
func FormatSeconds(s float64) string {
	if s < 1 {
		return FormatValue(s*1000) + " ms"
	}
	return FormatValue(s) + " s"
}

// Quantile returns the q-quantile of sorted values; 0 if there are none.
func Quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
