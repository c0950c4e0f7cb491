package sizes

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
)

// The size of the plot and its margins, in pixels.
const (
	plotWidth, plotHeight                    = 760, 460
	plotLeft, plotRight, plotTop, plotBottom = 60, 190, 40, 50
)

// A plotPoint is the cost and the slowdown of a policy.
type plotPoint struct {
	x, y  float64
	label string // may be empty
}

// A plotLine joins the points of one policy.
type plotLine struct {
	name, color string
	points      []plotPoint
}

// draw plots cost against slowdown, for the plain rule and for our analyzer with several exponents.
func (o *sizesOptions) draw(ctx context.Context, p *sizesParameters, jobs []*simJob) error {
	plain := plotLine{name: "the plain rule", color: "#c4572b"}
	ours := plotLine{name: "ours", color: "#1f6f8b"}
	always := plotLine{name: "always one class first", color: "#555555"}
	cases := simCases(p)
	var largest simResult
	for i, c := range cases[:2] {
		policy, err := c.policy(o.exponent, p.Seed)
		if err != nil {
			return err
		}
		r := simulate(ctx, p, jobs, policy, false)
		if i == 0 {
			largest = r
		}
		f := figureOf(c.name, r, largest, p.ActionsPerBuild)
		always.points = append(always.points, plotPoint{f.cost, f.p95, c.name})
	}
	for _, x := range []float64{0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8} {
		for i, line := range []*plotLine{&plain, &ours} {
			policy, err := cases[2+i].policy(x, p.Seed)
			if err != nil {
				return err
			}
			f := figureOf("", simulate(ctx, p, jobs, policy, false), largest, p.ActionsPerBuild)
			line.points = append(line.points, plotPoint{f.cost, f.p95, fmt.Sprintf("x=%g", x)})
		}
	}
	return os.WriteFile(o.plot, []byte(plotSVG([]plotLine{always, plain, ours})), 0o644)
}

// plotSVG returns a self-contained SVG image.
func plotSVG(lines []plotLine) string {
	maxX, maxY := 0.0, 0.0
	for _, l := range lines {
		for _, p := range l.points {
			maxX, maxY = max(maxX, p.x), max(maxY, p.y)
		}
	}
	maxX, maxY = math.Ceil(maxX*10)/10, math.Ceil(maxY)
	x := func(v float64) float64 { return plotLeft + v/maxX*(plotWidth-plotLeft-plotRight) }
	y := func(v float64) float64 { return plotHeight - plotBottom - v/maxY*(plotHeight-plotTop-plotBottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12" fill="#222">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", plotWidth, plotHeight)
	for v := 0.0; v <= maxX+1e-9; v += 0.1 {
		fmt.Fprintf(&b, `<path d="M%.1f %d V%d" stroke="#e4e4e4"/>`, x(v), plotTop, plotHeight-plotBottom)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.1f</text>`+"\n", x(v), plotHeight-plotBottom+18, v)
	}
	for v := 0.0; v <= maxY; v++ {
		fmt.Fprintf(&b, `<path d="M%d %.1f H%d" stroke="#e4e4e4"/>`, plotLeft, y(v), plotWidth-plotRight)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", plotLeft-8, y(v)+4, v)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">cost relative to always the largest class</text>`+"\n",
		(plotLeft+plotWidth-plotRight)/2, plotHeight-12)
	fmt.Fprintf(&b, `<text x="%d" y="%d">slowdown relative to always the largest class, 95th percentile</text>`+"\n", plotLeft-30, plotTop-16)
	for i, l := range lines {
		plotLineSVG(&b, l, x, y)
		at := plotTop + 10 + 20*i
		fmt.Fprintf(&b, `<circle cx="%d" cy="%d" r="4" fill="%s"/><text x="%d" y="%d">%s</text>`+"\n",
			plotWidth-plotRight+20, at, l.color, plotWidth-plotRight+32, at+4, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func plotLineSVG(b *strings.Builder, l plotLine, x, y func(float64) float64) {
	path := make([]string, len(l.points))
	for i, p := range l.points {
		path[i] = fmt.Sprintf("%.1f,%.1f", x(p.x), y(p.y))
	}
	if l.points[0].label[:2] == "x=" {
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", strings.Join(path, " "), l.color)
	}
	for _, p := range l.points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="4" fill="%s"/>`, x(p.x), y(p.y), l.color)
		fmt.Fprintf(b, `<text x="%.1f" y="%.1f" font-size="11" fill="%s">%s</text>`+"\n", x(p.x)+7, y(p.y)-5, l.color, p.label)
	}
}
