package charts

import (
	"fmt"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/web/text"
)

// A Plot is a line over the last hour, in an SVG of its width and height.
type Plot struct {
	Title     string
	Points    string // "x,y x,y"; empty: too few
	from      int    // the x of the first
	Now       int64
	Top       int64 // the value at the upper edge
	inSeconds bool
}

// Samples are those of an hour, and the width of a Plot.
const Samples = 360

const plotHeight = 60

// Width is that of the SVG.
func (p Plot) Width() int { return Samples }

// Height is that of the SVG.
func (p Plot) Height() int { return plotHeight }

// Area is the path of what is below the line.
func (p Plot) Area() string {
	return fmt.Sprintf("M%d,%d L%s L%d,%d Z", p.from, plotHeight, p.Points, Samples-1, plotHeight)
}

// Text writes a value with its unit.
func (p Plot) Text(value int64) string {
	if p.inSeconds {
		return (time.Duration(value) * time.Second).String()
	}
	return text.Count(value)
}

// Summary says the same in words.
func (p Plot) Summary() string {
	return fmt.Sprintf("%s over the last hour: now %s, scale from 0 to %s", p.Title, p.Text(p.Now), p.Text(p.Top))
}

// PlotOf draws a line through values, of which there are at most Samples. The last is at the right.
func PlotOf(title string, values []int64, inSeconds bool) Plot {
	p := Plot{Title: title, Top: 1, from: Samples - len(values), inSeconds: inSeconds}
	for _, v := range values {
		p.Top = max(p.Top, v)
	}
	var b strings.Builder
	for i, v := range values {
		y := float64(plotHeight) * (1 - float64(v)/float64(p.Top))
		fmt.Fprintf(&b, "%d,%.1f ", p.from+i, y)
		p.Now = v
	}
	if len(values) > 1 {
		p.Points = strings.TrimSpace(b.String())
	}
	return p
}
