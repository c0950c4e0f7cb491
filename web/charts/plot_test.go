package charts

import (
	"strings"
	"testing"
)

func TestPlot(t *testing.T) {
	hour, known := Spans()[0], func(mean, peak float64) Point { return Point{mean, peak, true} }
	for _, c := range []struct {
		name       string
		unit       Unit
		points     []Point
		line, area string
		summary    string
	}{
		{"nothing", Counts, make([]Point, 5), "", "", "x over the last hour: on average 0, scale from 0 to 1"},
		{
			"a line", Counts,
			[]Point{known(0, 0), known(2, 4), known(1, 1)},
			"M0,60L1,30L2,45", "M0,60L0,60L1,0L2,45L2,60Z", "x over the last hour: on average 1, scale from 0 to 4",
		},
		{
			"a gap, and a point alone", Seconds,
			[]Point{known(90, 90), known(90, 90), {}, {}, known(45, 45), {}, {}},
			"M0,0L1,0M4,30h-1", "M0,60L0,0L1,0L1,60ZM4,60L4,30h-1V60Z", "x over the last hour: on average 1m15s, scale from 0 to 1m30s",
		},
		{
			"the first alone", Shares,
			[]Point{known(.5, .5), {}},
			"M0,30h1", "M0,60L0,30h1V60Z", "x over the last hour: on average 50 %, scale from 0 to 100 %",
		},
		{"only one", Counts, []Point{known(2.5, 5)}, "M0,30h1", "M0,60L0,0h1V60Z", "x over the last hour: on average 2.5, scale from 0 to 5"},
	} {
		p := PlotOf("x", c.unit, hour, c.points)
		if p.Line != c.line || p.Area != c.area || p.Summary() != c.summary {
			t.Errorf("%s: line %q, area %q, %q", c.name, p.Line, p.Area, p.Summary())
		}
	}
	p := PlotOf("x", Counts, hour, []Point{known(20000, 20000)})
	p.Now = "3"
	if !strings.Contains(p.Summary(), "hour: now 3, on average 20\u2009000,") {
		t.Errorf("%q", p.Summary())
	}
}

func TestSpanOf(t *testing.T) {
	for name, want := range map[string]int{"": 0, "hour": 0, "day": 1, "two-weeks": 2} {
		if got, err := SpanOf(name); err != nil || got != want {
			t.Errorf("%q: %d, %v", name, got, err)
		}
	}
	if _, err := SpanOf("year"); err == nil {
		t.Error("a year is a span")
	}
}
