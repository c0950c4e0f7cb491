package plots

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/series"
)

const (
	// workersPeriod is the interval between samples of workers.
	workersPeriod = time.Minute
	// savePeriod is the interval between saves, so a crash loses at most this much.
	savePeriod = 5 * time.Minute
	// loadTries is the number of samples that are dropped while the store does not answer. After
	// that, charts start empty.
	loadTries    = 6
	loadPatience = 5 * time.Second
	// lastPatience is the timeout of the last save when the program ends.
	lastPatience = time.Second
	// workersAtOnce is the page size of listing workers, maxPages the maximum number of pages.
	workersAtOnce, maxPages = 1000, 10
)

// A Sample is the state of the farm at one moment.
type Sample struct {
	Waiting, Executing, Slots, Busy, Free, Workers, Draining, Lost int64
	Longest                                                        time.Duration // longest wait of the first action of a queue
}

// SampleOf adds up the queues.
func SampleOf(list *admin.ListQueuesResponse) Sample {
	x := Sample{Waiting: list.GetUnmatched(), Lost: list.GetWorkersLost()}
	for _, q := range list.GetQueues() {
		x.Waiting += q.GetQueued()
		x.Executing += int64(q.GetExecuting())
		x.Workers += int64(q.GetWorkers())
		x.Slots += int64(q.GetSlots())
		x.Busy += int64(q.GetSlotsBusy())
		x.Free += int64(q.GetSlotsFree())
		x.Draining += int64(q.GetDraining())
		if q.GetHeadQueued() != nil {
			x.Longest = max(x.Longest, time.Since(q.GetHeadQueued().AsTime()))
		}
	}
	return x
}

// IDOf returns an identifier of a worker that stays the same over restarts.
func IDOf(w *admin.Worker) string {
	return w.GetInstanceNamePrefix() + "/" + names.Pairs(w.GetIdentity())
}

// BusyOf returns the numbers of busy slots and of all slots of a worker.
func BusyOf(w *admin.Worker) (busy, all int32) {
	all = max(w.GetSlots(), 1)
	return min(w.GetActions(), all), all
}

// A Sampler takes samples for Plots.
type Sampler struct {
	*answers.Source
	plots  *Plots
	read   map[string]reading // by worker ID, since the worker's start; only workers of the latest sample
	minute int64              // of the latest sample of workers
}

// NewSampler returns a Sampler, which takes no samples before Run.
func NewSampler(s *answers.Source, p *Plots) *Sampler { return &Sampler{Source: s, plots: p} }

// A reading counts the files that commands have read.
type reading struct{ all, found, ahead int64 }

// Run takes samples until ctx ends, and returns nil. It takes each in the middle of its period, so
// that it counts there even if it is a little early or late.
func (s *Sampler) Run(ctx context.Context) error {
	loaded, saved := false, time.Now()
	for try := 1; ctx.Err() == nil; try++ {
		if !loaded {
			loaded = s.load(ctx, try)
		}
		if loaded {
			s.Sample(ctx)
		}
		if loaded && time.Since(saved) >= savePeriod {
			s.save(ctx)
			saved = time.Now()
		}
		timer := time.NewTimer(time.Until(time.Now().Add(samplePeriod / 2).Truncate(samplePeriod).Add(samplePeriod / 2)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	if loaded {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPatience)
		defer cancel()
		s.save(last)
	}
	return nil
}

func (s *Sampler) load(ctx context.Context, try int) bool {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	err := s.plots.load(ctx)
	if err != nil && try == loadTries {
		s.plots.logger.Warn("charts start empty: the saved ones cannot be read", zap.Error(err))
	}
	return err == nil || try == loadTries
}

func (s *Sampler) save(ctx context.Context) {
	if err := s.plots.save(ctx); err != nil {
		s.plots.logger.Warn("charts cannot be saved: a restart would lose them", zap.Error(err))
	}
}

// Sample samples the farm, and once a minute its workers.
func (s *Sampler) Sample(ctx context.Context) {
	now := time.Now()
	list, err := s.Queues(ctx)
	var read reading
	if minute := now.Unix() / int64(workersPeriod/time.Second); err == nil && minute != s.minute {
		s.minute = minute
		read, err = s.sampleWorkers(ctx, now)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.plots.logger.Warn("no sample for the charts", zap.Error(err))
		}
		return
	}
	x := SampleOf(list)
	figures := make([]float32, figuresOfFarm)
	figures[waitingFigure], figures[longestFigure] = float32(x.Waiting), float32(max(x.Longest, 0).Seconds())
	figures[busyFigure], figures[slotsFigure] = float32(x.Busy), float32(x.Slots)
	figures[usedFigure] = float32(x.Busy) / float32(max(x.Slots, 1))
	figures[workersFigure] = float32(x.Workers)
	figures[readFigure], figures[foundFigure], figures[aheadFigure] = float32(read.all), float32(read.found), float32(read.ahead)
	s.plots.add(now, figures)
}

// sampleWorkers adds to the chart of each worker, and returns the reads of all commands since its
// previous call.
func (s *Sampler) sampleWorkers(ctx context.Context, now time.Time) (sum reading, err error) {
	var lines []series.Sample
	read, token := map[string]reading{}, ""
	for range maxPages {
		list, err := answers.Get(ctx, s.Source, "", func(ctx context.Context) (*admin.ListWorkersResponse, error) {
			return s.Scheduler.ListWorkers(ctx, &admin.ListWorkersRequest{PageSize: workersAtOnce, PageToken: token})
		})
		if err != nil {
			return reading{}, err
		}
		for _, w := range list.GetWorkers() {
			id := IDOf(w)
			busy, slots := BusyOf(w)
			lines = append(lines, series.Sample{Name: id, Figures: []float32{float32(busy) / float32(slots)}})
			if w.GetReport() == nil {
				continue
			}
			is := readingOf(w)
			read[id] = is
			if was, known := s.read[id]; known {
				sum = sum.plus(is.since(was))
			}
		}
		if token = list.GetNextPageToken(); token == "" {
			break
		}
	}
	s.read = read
	s.plots.addWorkers(now, lines)
	return sum, nil
}

func readingOf(w *admin.Worker) reading {
	r := w.GetReport()
	others := r.GetFilesForeseen() + r.GetFilesLate() + r.GetFilesMissed()
	return reading{all: r.GetFilesLocal() + others, found: r.GetFilesLocal(), ahead: r.GetFilesForeseen()}
}

// since returns the reads after an earlier reading. If a count has decreased, the worker was
// restarted and all its reads are new.
func (r reading) since(was reading) reading {
	if r.all < was.all || r.found < was.found || r.ahead < was.ahead {
		return r
	}
	return reading{r.all - was.all, r.found - was.found, r.ahead - was.ahead}
}

func (r reading) plus(o reading) reading {
	return reading{r.all + o.all, r.found + o.found, r.ahead + o.ahead}
}
