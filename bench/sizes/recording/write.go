package recording

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// compare orders runs as they are written.
func (r Run) compare(o Run) int {
	return cmp.Or(
		cmp.Compare(r.Kind, o.Kind), cmp.Compare(r.Target, o.Target),
		cmp.Compare(r.Round, o.Round), cmp.Compare(r.CPUs, o.CPUs),
	)
}

// Write writes runs in the order of kind, target, round and CPUs. about is a comment of one line.
func Write(w io.Writer, about string, runs []Run) error {
	_, err := fmt.Fprintf(w, "# %s\n", about)
	c := csv.NewWriter(w)
	errs := []error{err, c.Write(columns)}
	for _, r := range slices.SortedFunc(slices.Values(runs), Run.compare) {
		errs = append(errs, c.Write([]string{
			r.Kind, r.Target, strconv.Itoa(r.Round), strconv.Itoa(r.CPUs), number(r.MemoryMiB, 0), string(r.End),
			number(max(r.Seconds, 0.001), 3), number(r.CPUSeconds, 3), number(r.ThrottledSeconds, 3), number(r.StalledSeconds, 3),
			number(r.PeakMiB, 1),
		}))
	}
	c.Flush()
	return errors.Join(append(errs, c.Error())...)
}

func number(v float64, digits int) string { return strconv.FormatFloat(v, 'f', digits, 64) }
