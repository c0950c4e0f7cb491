package report

import "fmt"

// A Turn has the figures of one of two schedulers that take turns.
type Turn struct {
	Rate float64 // actions a second
	CPU  float64 // CPU time for each, in µs
	// Others is the share of the machine's CPU time that other programs had.
	Others float64
}

// A Pair is a turn without what is measured, and the turn next to it with that.
type Pair struct{ Without, With Turn }

// Others is the larger share that other programs had in a turn of the pair.
func (p Pair) Others() float64 { return max(p.Without.Others, p.With.Others) }

// Pairs are all pairs of a benchmark.
type Pairs []Pair

// Figures returns a figure of each pair.
func (p Pairs) Figures(of func(Pair) float64) []float64 {
	var list []float64
	for _, pair := range p {
		list = append(list, of(pair))
	}
	return list
}

// Ratios returns the rates with what is measured over those without.
func (p Pairs) Ratios() []float64 {
	return p.Figures(func(p Pair) float64 { return p.With.Rate / p.Without.Rate })
}

// Ratio returns the row of the ratios. what is what is measured.
func (p Pairs) Ratio(name, what, note string) Row {
	r := NewRow(name, Median(p.Ratios()), "ratio")
	r.Baseline = fmt.Sprintf("%.0f actions/s", Median(p.Figures(func(p Pair) float64 { return p.Without.Rate })))
	r.Note = fmt.Sprintf("%.0f actions/s with %s; %s, %s",
		Median(p.Figures(func(p Pair) float64 { return p.With.Rate })), what, Spread(p.Ratios()), note)
	return r
}

// Cost returns the row of the CPU time that what is measured takes for an action.
func (p Pairs) Cost(name, note string) Row {
	costs := p.Figures(func(p Pair) float64 { return p.With.CPU - p.Without.CPU })
	r := NewRow(name, Median(costs), "µs")
	r.Baseline = fmt.Sprintf("%.1f µs for an action without", Median(p.Figures(func(p Pair) float64 { return p.Without.CPU })))
	r.Note = Spread(costs) + ", " + note
	return r
}
