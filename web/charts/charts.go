package charts

import (
	"time"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/runs"
)

// A Meter is a bar with marks. Lengths are in thousandths of the whole bar.
type Meter struct {
	Label string
	Fill  int64
	Ticks []int64
}

// tickWidth is the width of a mark. A mark never leaves the bar.
const tickWidth = 16

// MeterOf returns a bar that is filled to a share from 0 to 1, with a mark at each of the others.
func MeterOf(label string, fill float64, ticks ...float64) Meter {
	m := Meter{Label: label, Fill: thousandths(fill)}
	for _, t := range ticks {
		m.Ticks = append(m.Ticks, min(thousandths(t), 1000-tickWidth))
	}
	return m
}

func thousandths(share float64) int64 { return int64(1000 * min(max(share, 0), 1)) }

// A Chart shows the runs on each size class by duration, with the expected duration of the next run
// and the longest acceptable one.
type Chart struct {
	Rows    []Row
	Longest time.Duration
}

// A Row is a size class. Times are in thousandths of the longest duration.
type Row struct {
	Class            uint32
	Probability      float64
	Expected, Accept int64 // 0 if unknown
	Runs             []Run
}

// A Run is one run on a size class.
type Run struct {
	At  int64
	Bad bool // stopped by its timeout
}

// ChartOf returns the Chart of size classes; nil if no duration is known.
func ChartOf(resp *admin.GetSizesResponse) *Chart {
	c := &Chart{}
	for _, s := range resp.GetSizes() {
		c.Longest = max(c.Longest, s.GetExpected().AsDuration(), s.GetAcceptable().AsDuration())
		for _, r := range s.GetRuns() {
			c.Longest = max(c.Longest, time.Duration(r.GetDurationNanoseconds()))
		}
	}
	if c.Longest == 0 {
		return nil
	}
	at := func(d time.Duration) int64 { return thousandths(float64(d) / float64(c.Longest)) }
	for _, s := range resp.GetSizes() {
		row := Row{
			Class: s.GetSizeClass(), Probability: s.GetProbability(),
			Expected: at(s.GetExpected().AsDuration()), Accept: at(s.GetAcceptable().AsDuration()),
		}
		for _, r := range s.GetRuns() {
			if d := time.Duration(r.GetDurationNanoseconds()); d > 0 { // failures have no duration
				row.Runs = append(row.Runs, Run{at(d), r.GetOutcome() == runs.Outcome_TIMED_OUT})
			}
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}
