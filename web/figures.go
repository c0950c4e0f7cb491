package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/series"
)

// The figures of a sample of the farm. Of the last three there is a sum of what was read since the sample before.
const (
	waitingFigure = iota
	longestFigure // in seconds
	busyFigure
	slotsFigure
	usedFigure // the share of slots that are busy
	workersFigure
	readFigure    // files that commands read
	foundFigure   // of them, those that the worker's store had
	aheadFigure   // of the others, those that came before they were asked for
	figuresOfFarm // their number
)

// samplePeriod is the finest of what is kept.
const samplePeriod = 10 * time.Second

// farmShape and workerShape have a level for each of charts.Spans.
var (
	farmShape = series.Shape{Figures: figuresOfFarm, Levels: []series.Level{
		{Step: samplePeriod, Bins: 360}, {Step: time.Minute, Bins: 1440}, {Step: 10 * time.Minute, Bins: 2016},
	}}
	workerShape = series.Shape{Figures: 1, Levels: []series.Level{
		{Step: time.Minute, Bins: 60}, {Step: 10 * time.Minute, Bins: 144}, {Step: 2 * time.Hour, Bins: 168},
	}}
)

// How many bins of each level of farmShape are one point of a line. Files are counted once a minute.
var (
	joined      = []int{1, 4, 6}
	joinedFiles = []int{6, 4, 6}
)

const (
	// maxLines bounds the workers that have lines, so that what is kept of them fits into a record of 1 MiB.
	maxLines = 256
	// keepLine is for how long that of a worker is kept that is away.
	keepLine = 24 * time.Hour
)

// figures has what plots show.
type figures struct {
	kept   record.Hints // nil: nobody keeps them
	farmID string
	logger *zap.Logger

	mu      sync.Mutex // guards the rest, and no question is asked while it is held
	farm    *series.Series
	workers *series.Lines
}

func newFigures(o Options) *figures {
	return &figures{
		kept: o.Figures, farmID: o.Farm, logger: o.Logger,
		farm: series.New(farmShape), workers: series.NewLines(workerShape, maxLines, keepLine),
	}
}

func (f *figures) add(at time.Time, sample []float32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.farm.Add(at, sample)
}

func (f *figures) addWorkers(at time.Time, all []series.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workers.Add(at, all)
}

func (f *figures) key(of string) record.Key {
	return record.Key{Bucket: names.FiguresBucket, Digest: digest.Of(digest.SHA256, []byte(of+"\x00"+f.farmID))}
}

// load begins with what is kept. What is damaged, or of another version, is begun anew; an error says that the store does not answer.
func (f *figures) load(ctx context.Context) error {
	if f.kept == nil {
		return nil
	}
	farm, err := f.get(ctx, "farm")
	if err != nil {
		return err
	}
	workers, err := f.get(ctx, "workers")
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if farm != nil {
		if old, err := series.Decode(farmShape, farm); err == nil {
			f.farm = old
		} else {
			f.logger.Warn("charts of the farm start empty: the saved ones cannot be read", zap.Error(err))
		}
	}
	if workers != nil {
		if err := f.workers.Decode(workers); err != nil {
			f.logger.Warn("charts of workers start empty: the saved ones cannot be read", zap.Error(err))
		}
	}
	return nil
}

func (f *figures) get(ctx context.Context, of string) ([]byte, error) {
	data, err := f.kept.Get(ctx, f.key(of))
	if errors.Is(err, record.ErrNotFound) {
		return nil, nil
	}
	return data, err
}

// save keeps what there is now.
func (f *figures) save(ctx context.Context) error {
	if f.kept == nil {
		return nil
	}
	f.mu.Lock()
	farm, workers := f.farm.Encode(), f.workers.Encode()
	f.mu.Unlock()
	return errors.Join(f.kept.Put(ctx, f.key("farm"), farm), f.kept.Put(ctx, f.key("workers"), workers))
}

// A line is one of the farm.
type line struct {
	title string
	unit  charts.Unit
	join  []int // by level
	point func(series.Bin) charts.Point
}

func mean(figure int) func(series.Bin) charts.Point {
	return func(b series.Bin) charts.Point {
		return charts.Point{Mean: b.Mean(figure), Peak: b.Peaks[figure], Known: b.Count > 0}
	}
}

// ratio is not known where whole is 0.
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
		{"Found on workers", charts.Shares, joinedFiles, func(b series.Bin) charts.Point {
			return ratio(b.Sums[foundFigure], b.Sums[readFigure], 0)
		}},
		{"Fetched ahead", charts.Shares, joinedFiles, func(b series.Bin) charts.Point {
			return ratio(b.Sums[aheadFigure], b.Sums[readFigure]-b.Sums[foundFigure], 0)
		}},
	}
}

// plots draws the lines of the farm over a span. What they are now is in the newest two points of the shortest span.
func (f *figures) plots(now time.Time, span int) (all []charts.Plot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	type which struct{ level, join int }
	known := map[which][]series.Bin{}
	of := func(l line, level int) []charts.Point {
		w := which{level, l.join[level]}
		if known[w] == nil {
			known[w] = f.farm.Bins(w.level, now, w.join)
		}
		return points(known[w], l.point)
	}
	for _, l := range linesOfFarm() {
		recent, shown := of(l, 0), of(l, span)
		p := charts.PlotOf(l.title, l.unit, charts.Spans()[span], shown)
		for _, last := range recent[len(recent)-2:] {
			if last.Known {
				p.Now = p.Text(last.Mean)
			}
		}
		all = append(all, p)
	}
	return all
}

// line draws that of a worker.
func (f *figures) line(worker string, now time.Time, span int) charts.Plot {
	f.mu.Lock()
	defer f.mu.Unlock()
	return charts.PlotOf("Slots busy", charts.Shares, charts.Spans()[span], points(f.workers.Bins(worker, span, now), mean(0)))
}

func points(bins []series.Bin, of func(series.Bin) charts.Point) []charts.Point {
	all := make([]charts.Point, len(bins))
	for i, b := range bins {
		all[i] = of(b)
	}
	return all
}

// spanField is the part of a query that says over which time lines are drawn.
const spanField = "span"

// spanOf returns the index of the span that is asked for, and the choices there are, on the same page.
func spanOf(r *http.Request) (int, []choice, error) {
	span, err := charts.SpanOf(r.FormValue(spanField))
	if err != nil {
		return 0, nil, status.Error(codes.InvalidArgument, fmt.Sprintf("%v: it is hour, day or two-weeks", err))
	}
	var all []choice
	for i, s := range charts.Spans() {
		query := url.Values{spanField: {s.Name}}
		for _, kept := range []string{"pattern", "page"} {
			if value := r.FormValue(kept); value != "" {
				query.Set(kept, value)
			}
		}
		all = append(all, choice{s.Title, r.URL.Path + "?" + query.Encode(), i == span})
	}
	return span, all, nil
}
