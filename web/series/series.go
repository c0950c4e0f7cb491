package series

import (
	"math"
	"time"
)

// A Level is a resolution of a Series, and how long figures are kept at it.
type Level struct {
	// Step is the length of a bin, in whole seconds.
	Step time.Duration
	// Bins is the number of bins.
	Bins int
}

// Span returns the time that a Level covers.
func (l Level) Span() time.Duration { return time.Duration(l.Bins) * l.Step }

// A Shape is the common form of all series of a kind.
type Shape struct {
	Levels []Level
	// Figures is the number of figures in each sample.
	Figures int
}

// A Series has the bins of each Level. Bins end at the newest sample.
type Series struct {
	shape  Shape
	levels []ring
}

// A ring has the bins of a Level. A bin's index counts steps since 1970; the bin is at the index
// modulo the number of bins.
type ring struct {
	Level
	last   int64    // index of the newest bin
	counts []uint16 // samples per bin; 0: no data
	sums   []float32
	peaks  []float32
}

// New returns an empty Series.
func New(shape Shape) *Series {
	s := &Series{shape: shape}
	for _, l := range shape.Levels {
		s.levels = append(s.levels, ring{
			Level: l, counts: make([]uint16, l.Bins),
			sums: make([]float32, l.Bins*shape.Figures), peaks: make([]float32, l.Bins*shape.Figures),
		})
	}
	return s
}

// Add adds a sample, whose figures must not be negative. If there are samples of later times, the
// clock was set back: Add drops these.
func (s *Series) Add(at time.Time, figures []float32) {
	for i := range s.levels {
		s.levels[i].add(s.levels[i].index(at), figures)
	}
}

func (r *ring) index(at time.Time) int64 { return floor(at.Unix(), int64(r.Step/time.Second)) }

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// slot returns the position of the bin of an index.
func (r *ring) slot(i int64) int {
	n := int64(r.Bins)
	return int((i%n + n) % n)
}

func (r *ring) add(i int64, figures []float32) {
	r.moveTo(i)
	at := r.slot(i)
	if r.counts[at] == math.MaxUint16 {
		return
	}
	r.counts[at]++
	for f, value := range figures {
		r.sums[at*len(figures)+f] += value
		r.peaks[at*len(figures)+f] = max(r.peaks[at*len(figures)+f], value)
	}
}

// moveTo makes i the newest index. Bins between i and the previous newest one are empty.
func (r *ring) moveTo(i int64) {
	from, until := min(i, r.last)+1, max(i, r.last)
	for j := max(from, until-int64(r.Bins)+1); j <= until; j++ {
		r.clear(r.slot(j))
	}
	r.last = i
}

func (r *ring) clear(at int) {
	width := len(r.sums) / r.Bins
	r.counts[at] = 0
	clear(r.sums[at*width : (at+1)*width])
	clear(r.peaks[at*width : (at+1)*width])
}

// A Bin has the figures of a span of time.
type Bin struct {
	// Count is the number of samples; 0: no data.
	Count int
	// Sums and Peaks have the sum and the peak of each figure.
	Sums, Peaks []float64
}

// Mean returns the mean of a figure; 0 without data.
func (b Bin) Mean(figure int) float64 {
	if b.Count == 0 {
		return 0
	}
	return b.Sums[figure] / float64(b.Count)
}

// Bins returns the figures of a level, the oldest first. It joins that many bins to one. The last
// one includes now. Joined bins begin at multiples of their length, so that they stay the same as
// time passes; the first may be incomplete.
func (s *Series) Bins(level int, now time.Time, join int) []Bin {
	r := &s.levels[level]
	bins, n, width := make([]Bin, r.Bins/join), int64(join), s.shape.Figures
	values := make([]float64, 2*width*len(bins))
	first := floor(r.index(now), n) - int64(len(bins)) + 1
	for b := range bins {
		own := values[2*width*b:]
		bins[b].Sums, bins[b].Peaks = own[:width:width], own[width:2*width:2*width]
		for i := (first + int64(b)) * n; i < (first+int64(b)+1)*n; i++ {
			r.join(&bins[b], i)
		}
	}
	return bins
}

func (r *ring) join(b *Bin, i int64) {
	if i > r.last || i <= r.last-int64(r.Bins) {
		return
	}
	at := r.slot(i)
	b.Count += int(r.counts[at])
	for f := range b.Sums {
		b.Sums[f] += float64(r.sums[at*len(b.Sums)+f])
		b.Peaks[f] = max(b.Peaks[f], float64(r.peaks[at*len(b.Sums)+f]))
	}
}
