package web

import (
	"fmt"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// A chart shows a bar for each size class: how long a run takes there, with a line where it is
// no longer acceptable.
type chart struct {
	Bars []bar
}

// A bar is in thousandths of the longest time.
type bar struct {
	Label            string
	Expected, Accept int64
}

const (
	barHeight = 18
	barGap    = 8
)

func (c *chart) Height() int { return len(c.Bars) * (barHeight + barGap) }

// Y is the upper edge of bar i.
func (c *chart) Y(i int) int { return i * (barHeight + barGap) }

// BarHeight is in the units of Y.
func (c *chart) BarHeight() int { return barHeight }

// chartOf is nil if nothing is known of any class.
func chartOf(resp *admin.GetSizesResponse) *chart {
	var longest float64
	for _, s := range resp.GetSizes() {
		longest = max(longest, s.GetExpected().AsDuration().Seconds(), s.GetAcceptable().AsDuration().Seconds())
	}
	if longest == 0 {
		return nil
	}
	c := &chart{}
	for _, s := range resp.GetSizes() {
		c.Bars = append(c.Bars, bar{
			Label:    fmt.Sprintf("class %d", s.GetSizeClass()),
			Expected: int64(1000 * s.GetExpected().AsDuration().Seconds() / longest),
			Accept:   int64(1000 * s.GetAcceptable().AsDuration().Seconds() / longest),
		})
	}
	return c
}
