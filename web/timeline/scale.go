package timeline

import (
	"fmt"
	"strings"
	"time"
)

// mostTicks is the number of ticks that fit on a phone's screen, besides the one at 0.
const mostTicks = 5

// steps are the possible intervals between ticks in milliseconds. Longer intervals are whole days.
var steps = []int64{
	1, 2, 5, 10, 20, 50, 100, 200, 500,
	1_000, 2_000, 5_000, 10_000, 15_000, 30_000,
	60_000, 120_000, 300_000, 600_000, 900_000, 1_800_000,
	3_600_000, 7_200_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000,
}

// A Tick is a labelled time on the axis below the lanes.
type Tick struct {
	// At is the position, such as 12.5%.
	At string
	// Text is the time, such as 1m30s.
	Text string
	// Anchor is the part of the text that is at the position: start, middle or end.
	Anchor string
}

// Steps returns the possible intervals between ticks in milliseconds, for the script of the page.
func (l *Lanes) Steps() string { return strings.Trim(fmt.Sprint(steps), "[]") }

// Ticks returns round times, beginning with 0.
func (l *Lanes) Ticks() (ticks []Tick) {
	if l.Span <= 0 {
		return []Tick{{"0%", "0", "start"}}
	}
	step := stepOf(l.Span)
	for at := int64(0); at <= l.Span; at += step {
		tick := Tick{fmt.Sprintf("%.2f%%", 100*float64(at)/float64(l.Span)), tickText(at), "middle"}
		switch {
		case at == 0:
			tick.Anchor = "start"
		case float64(at) > 0.95*float64(l.Span): // otherwise the text would end beyond the axis
			tick.Anchor = "end"
		}
		ticks = append(ticks, tick)
	}
	return ticks
}

// stepOf returns the interval between ticks for a time line of span milliseconds.
func stepOf(span int64) int64 {
	for _, step := range steps {
		if span/step <= mostTicks {
			return step
		}
	}
	day := steps[len(steps)-1]
	return (span/(mostTicks*day) + 1) * day
}

// tickText formats a time without parts that are 0.
func tickText(ms int64) string {
	if ms == 0 {
		return "0"
	}
	s := (time.Duration(ms) * time.Millisecond).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
