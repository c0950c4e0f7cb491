package charts

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/web/text"
)

// A Span is the time that a plot covers.
type Span struct {
	// Name is the span's name in URLs, Title on the page, and Over in sentences.
	Name, Title, Over string
	// Marks label the time axis at the left, in the middle and at the right.
	Marks [3]string
	// Length is the duration of the span.
	Length time.Duration
}

// Spans returns all spans, the shortest first.
func Spans() []Span {
	return []Span{
		{"hour", "Hour", "the last hour", [3]string{"1 hour ago", "30 minutes ago", "now"}, time.Hour},
		{"day", "Day", "the last day", [3]string{"1 day ago", "12 hours ago", "now"}, 24 * time.Hour},
		{"two-weeks", "Two weeks", "the last two weeks", [3]string{"2 weeks ago", "1 week ago", "now"}, 14 * 24 * time.Hour},
	}
}

// SpanOf returns the index in Spans of a name. An empty name is the first.
func SpanOf(name string) (int, error) {
	all := Spans()
	at := slices.IndexFunc(all, func(s Span) bool { return s.Name == cmp.Or(name, all[0].Name) })
	if at < 0 {
		return 0, fmt.Errorf("there is no span %q", name)
	}
	return at, nil
}

// A Unit is the unit of the values of a Plot.
type Unit int

// All units.
const (
	Counts  Unit = iota
	Seconds      // shown as durations
	Shares       // from 0 to 1, shown in percent
)

// A Point has the mean and the peak of a value in one time step of the plot.
type Point struct {
	Mean, Peak float64
	Known      bool // false: the plot has a gap
}

// A Plot is an SVG: a line of means over a Span, above a shaded area of peaks.
type Plot struct {
	Title string
	Span  Span
	// Line and Area are SVG paths; empty if the whole span has no data.
	Line, Area string
	// Values are the means, separated by spaces; a dash stands for an unknown one. Unit is the name
	// of their Unit.
	Values, Unit string
	// Now is the present value as text; empty if unknown.
	Now  string
	Mean float64
	Top  float64 // value at the upper edge
	// Width is the width of the SVG; the distance between two points is 1.
	Width int
	unit  Unit
}

const plotHeight = 60

// Height is the height of the SVG.
func (p Plot) Height() int { return plotHeight }

// Ticks is the path of the marks in the middle of both axes.
func (p Plot) Ticks() string {
	return fmt.Sprintf("M%s,0V%dM0,%dH%d", short(float64(p.Width)/2), plotHeight, plotHeight/2, p.Width)
}

// Text formats a value with its unit.
func (p Plot) Text(value float64) string {
	switch p.unit {
	case Seconds:
		return (time.Duration(math.Round(value)) * time.Second).String()
	case Shares:
		return text.Percent(value)
	}
	if value < 10 && value != math.Trunc(value) {
		return fmt.Sprintf("%.1f", value)
	}
	return text.Count(int64(math.Round(value)))
}

// Summary describes the plot in words, for readers who do not see it.
func (p Plot) Summary() string {
	now := ""
	if p.Now != "" {
		now = "now " + p.Now + ", "
	}
	return fmt.Sprintf("%s over %s: %son average %s, scale from 0 to %s", p.Title, p.Span.Over, now, p.Text(p.Mean), p.Text(p.Top))
}

// PlotOf draws points at equal distances, the last at the right. The upper edge is the largest
// peak; for Shares it is always 1.
func PlotOf(title string, unit Unit, span Span, points []Point) Plot {
	p := Plot{Title: title, Span: span, Top: 1, Width: max(len(points)-1, 1), unit: unit, Unit: [...]string{"counts", "seconds", "shares"}[unit]}
	known, sum := 0, 0.0
	for _, point := range points {
		if point.Known {
			known++
			sum += point.Mean
			p.Top = max(p.Top, point.Peak)
		}
	}
	if unit == Shares {
		p.Top = 1
	}
	if known == 0 {
		return p
	}
	p.Mean, p.Values = sum/float64(known), valuesOf(points)
	var line, area strings.Builder
	for from := 0; from < len(points); {
		until := from
		for until < len(points) && points[until].Known {
			until++
		}
		if until > from {
			p.draw(&line, &area, points, from, until)
		}
		from = until + 1
	}
	p.Line, p.Area = line.String(), area.String()
	return p
}

func valuesOf(points []Point) string {
	values := make([]string, len(points))
	for i, point := range points {
		if values[i] = "-"; point.Known {
			values[i] = strconv.FormatFloat(point.Mean, 'g', 4, 64)
		}
	}
	return strings.Join(values, " ")
}

// draw adds the points between two gaps. A single point becomes a dash of width 1.
func (p Plot) draw(line, area *strings.Builder, points []Point, from, until int) {
	y := func(v float64) string { return short(plotHeight * (1 - min(v/p.Top, 1))) }
	fmt.Fprintf(area, "M%d,%d", from, plotHeight)
	for i := from; i < until; i++ {
		command := "L"
		if i == from {
			command = "M"
		}
		fmt.Fprintf(line, "%s%d,%s", command, i, y(points[i].Mean))
		fmt.Fprintf(area, "L%d,%s", i, y(max(points[i].Peak, points[i].Mean)))
	}
	if until-from == 1 {
		along := "h-1"
		if from == 0 {
			along = "h1"
		}
		line.WriteString(along)
		fmt.Fprintf(area, "%sV%dZ", along, plotHeight)
		return
	}
	fmt.Fprintf(area, "L%d,%dZ", until-1, plotHeight)
}

// short formats a coordinate with at most one decimal.
func short(x float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
}
