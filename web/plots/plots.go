package plots

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/series"
)

// The figures of a sample of the farm. The last three are increases since the previous sample.
const (
	waitingFigure = iota
	longestFigure // longest wait in seconds
	busyFigure
	slotsFigure
	usedFigure // share of busy slots
	workersFigure
	readFigure    // files that commands read
	foundFigure   // those that the worker's store had
	aheadFigure   // the others that arrived before a command requested them
	figuresOfFarm // number of figures
)

// samplePeriod is the finest resolution.
const samplePeriod = 10 * time.Second

// farmShape and workerShape have one level for each of charts.Spans.
var (
	farmShape = series.Shape{Figures: figuresOfFarm, Levels: []series.Level{
		{Step: samplePeriod, Bins: 360}, {Step: time.Minute, Bins: 1440}, {Step: 10 * time.Minute, Bins: 2016},
	}}
	workerShape = series.Shape{Figures: 1, Levels: []series.Level{
		{Step: time.Minute, Bins: 60}, {Step: 10 * time.Minute, Bins: 144}, {Step: 2 * time.Hour, Bins: 168},
	}}
)

// Number of bins of each level of farmShape that make one point of a line. Files are counted once a
// minute, so their points need more bins.
var (
	joined      = []int{1, 4, 6}
	joinedFiles = []int{6, 4, 6}
)

const (
	// maxLines limits the workers with charts, so that the record of all lines fits into 1 MiB.
	maxLines = 256
	// keepLine is how long the line of an absent worker is kept.
	keepLine = 24 * time.Hour
)

// Plots holds the data of charts.
type Plots struct {
	kept   record.Hints // nil: charts are not saved
	farmID string
	logger *zap.Logger

	mu      sync.Mutex // guards the fields below; not held during requests
	farm    *series.Series
	workers *series.Lines
}

// New returns Plots that are stored in kept under keys that contain farm. If kept is nil, nothing
// is stored.
func New(kept record.Hints, farm string, logger *zap.Logger) *Plots {
	return &Plots{
		kept: kept, farmID: farm, logger: logger,
		farm: series.New(farmShape), workers: series.NewLines(workerShape, maxLines, keepLine),
	}
}

func (p *Plots) add(at time.Time, sample []float32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.farm.Add(at, sample)
}

func (p *Plots) addWorkers(at time.Time, all []series.Sample) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers.Add(at, all)
}

func (p *Plots) key(of string) record.Key {
	return record.Key{Bucket: names.FiguresBucket, Digest: digest.Of(digest.SHA256, []byte(of+"\x00"+p.farmID))}
}

// load loads the stored charts. Damaged charts, and those of another version, are replaced by empty
// ones. An error means that the store does not answer.
func (p *Plots) load(ctx context.Context) error {
	if p.kept == nil {
		return nil
	}
	farm, err := p.get(ctx, "farm")
	if err != nil {
		return err
	}
	workers, err := p.get(ctx, "workers")
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if farm != nil {
		if old, err := series.Decode(farmShape, farm); err == nil {
			p.farm = old
		} else {
			p.logger.Warn("charts of the farm start empty: the saved ones cannot be read", zap.Error(err))
		}
	}
	if workers != nil {
		if err := p.workers.Decode(workers); err != nil {
			p.logger.Warn("charts of workers start empty: the saved ones cannot be read", zap.Error(err))
		}
	}
	return nil
}

func (p *Plots) get(ctx context.Context, of string) ([]byte, error) {
	data, err := p.kept.Get(ctx, p.key(of))
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	return data, err
}

// save stores the charts.
func (p *Plots) save(ctx context.Context) error {
	if p.kept == nil {
		return nil
	}
	p.mu.Lock()
	farm, workers := p.farm.Encode(), p.workers.Encode()
	p.mu.Unlock()
	return errors.Join(p.kept.Put(ctx, p.key("farm"), farm), p.kept.Put(ctx, p.key("workers"), workers))
}

// A line is a chart of the farm.
type line struct {
	title string
	unit  charts.Unit
	join  []int // bins per point, by level
	point func(series.Bin) charts.Point
}

func mean(figure int) func(series.Bin) charts.Point {
	return func(b series.Bin) charts.Point {
		return charts.Point{Mean: b.Mean(figure), Peak: b.Peaks[figure], Known: b.Count > 0}
	}
}

// ratio returns part/whole as a point; unknown if whole is 0.
func ratio(part, whole, peak float64) charts.Point {
	if whole <= 0 {
		return charts.Point{}
	}
	return charts.Point{Mean: part / whole, Peak: peak, Known: true}
}

func linesOfFarm() []line {
	return []line{
		{"Waiting actions", charts.Counts, joined, mean(waitingFigure)},
		{"Longest wait", charts.Seconds, joined, mean(longestFigure)},
		{"Slots busy", charts.Shares, joined, func(b series.Bin) charts.Point {
			return ratio(b.Sums[busyFigure], b.Sums[slotsFigure], b.Peaks[usedFigure])
		}},
		{"Workers", charts.Counts, joined, mean(workersFigure)},
		{"Local files", charts.Shares, joinedFiles, func(b series.Bin) charts.Point {
			return ratio(b.Sums[foundFigure], b.Sums[readFigure], 0)
		}},
		{"Foreseen files", charts.Shares, joinedFiles, func(b series.Bin) charts.Point {
			return ratio(b.Sums[aheadFigure], b.Sums[readFigure]-b.Sums[foundFigure], 0)
		}},
	}
}

// Farm draws the charts of the farm over a span. The present values come from the two newest points
// of the shortest span.
func (p *Plots) Farm(now time.Time, span int) (all []charts.Plot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	type which struct{ level, join int }
	known := map[which][]series.Bin{}
	of := func(l line, level int) []charts.Point {
		w := which{level, l.join[level]}
		if known[w] == nil {
			known[w] = p.farm.Bins(w.level, now, w.join)
		}
		return points(known[w], l.point)
	}
	for _, l := range linesOfFarm() {
		recent, shown := of(l, 0), of(l, span)
		plot := charts.PlotOf(l.title, l.unit, charts.Spans()[span], shown)
		for _, last := range recent[len(recent)-2:] {
			if last.Known {
				plot.Now = plot.Text(last.Mean)
			}
		}
		all = append(all, plot)
	}
	return all
}

// Worker draws the chart of the worker whose IDOf is worker.
func (p *Plots) Worker(worker string, now time.Time, span int) charts.Plot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return charts.PlotOf("Slots busy", charts.Shares, charts.Spans()[span], points(p.workers.Bins(worker, span, now), mean(0)))
}

func points(bins []series.Bin, of func(series.Bin) charts.Point) []charts.Point {
	all := make([]charts.Point, len(bins))
	for i, b := range bins {
		all[i] = of(b)
	}
	return all
}
