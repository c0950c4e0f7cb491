package web

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/web/series"
)

const (
	// workersPeriod is how often workers are looked at.
	workersPeriod = time.Minute
	// savePeriod is how often what there is is kept, and what a crash loses at most.
	savePeriod = 5 * time.Minute
	// loadTries is how many samples are given up for a store that does not answer, before all begins anew.
	loadTries    = 6
	loadPatience = 5 * time.Second
	// lastPatience is how long the end of the program waits for the last samples to be kept.
	lastPatience = time.Second
	// workersAtOnce is how many workers are asked for at a time, and maxPages how often.
	workersAtOnce, maxPages = 1000, 10
)

// A sample is how much of everything there was at a moment.
type sample struct {
	waiting, executing, slots, busy, free, workers, draining, lost int64
	longest                                                        time.Duration // that the first of a queue waits
}

func sampleOf(list *admin.ListQueuesResponse) sample {
	x := sample{waiting: list.GetUnmatched(), lost: list.GetWorkersLost()}
	for _, q := range list.GetQueues() {
		x.waiting += q.GetQueued()
		x.executing += int64(q.GetExecuting())
		x.workers += int64(q.GetWorkers())
		x.slots += int64(q.GetSlots())
		x.busy += int64(q.GetSlotsBusy())
		x.free += int64(q.GetSlotsFree())
		x.draining += int64(q.GetDraining())
		if q.GetHeadQueued() != nil {
			x.longest = max(x.longest, time.Since(q.GetHeadQueued().AsTime()))
		}
	}
	return x
}

// A sampler fills figures.
type sampler struct {
	*source
	figures *figures
	read    map[string]reading // by the ID of a worker, since its start; of those that were there last
	minute  int64              // in which workers were looked at last
}

// A reading is how many files commands have read.
type reading struct{ all, found, ahead int64 }

// run takes samples until ctx ends, and returns nil. They are taken in the middle of each period, so that each counts in one of its own
// though some come a little early or late.
func (s *sampler) run(ctx context.Context) error {
	loaded, saved := false, time.Now()
	for try := 1; ctx.Err() == nil; try++ {
		if !loaded {
			loaded = s.load(ctx, try)
		}
		if loaded {
			s.sample(ctx)
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

func (s *sampler) load(ctx context.Context, try int) bool {
	ctx, cancel := context.WithTimeout(ctx, loadPatience)
	defer cancel()
	err := s.figures.load(ctx)
	if err != nil && try == loadTries {
		s.figures.logger.Warn("charts start empty: the saved ones cannot be read", zap.Error(err))
	}
	return err == nil || try == loadTries
}

func (s *sampler) save(ctx context.Context) {
	if err := s.figures.save(ctx); err != nil {
		s.figures.logger.Warn("charts cannot be saved: a restart would lose them", zap.Error(err))
	}
}

// sample looks at the farm, and once a minute at its workers.
func (s *sampler) sample(ctx context.Context) {
	now := time.Now()
	list, err := s.queues(ctx)
	var read reading
	if minute := now.Unix() / int64(workersPeriod/time.Second); err == nil && minute != s.minute {
		s.minute = minute
		read, err = s.sampleWorkers(ctx, now)
	}
	if err != nil {
		if ctx.Err() == nil {
			s.figures.logger.Warn("no sample for the charts", zap.Error(err))
		}
		return
	}
	x := sampleOf(list)
	figures := make([]float32, figuresOfFarm)
	figures[waitingFigure], figures[longestFigure] = float32(x.waiting), float32(max(x.longest, 0).Seconds())
	figures[busyFigure], figures[slotsFigure] = float32(x.busy), float32(x.slots)
	figures[usedFigure] = float32(x.busy) / float32(max(x.slots, 1))
	figures[workersFigure] = float32(x.workers)
	figures[readFigure], figures[foundFigure], figures[aheadFigure] = float32(read.all), float32(read.found), float32(read.ahead)
	s.figures.add(now, figures)
}

// sampleWorkers adds to the line of each worker, and returns what commands have read since the last time.
func (s *sampler) sampleWorkers(ctx context.Context, now time.Time) (sum reading, err error) {
	var lines []series.Sample
	read, token := map[string]reading{}, ""
	for range maxPages {
		list, err := ask(ctx, s.source, "", func(ctx context.Context) (*admin.ListWorkersResponse, error) {
			return s.scheduler.ListWorkers(ctx, &admin.ListWorkersRequest{PageSize: workersAtOnce, PageToken: token})
		})
		if err != nil {
			return reading{}, err
		}
		for _, w := range list.GetWorkers() {
			id := workerID(w)
			busy, slots := busyOf(w)
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
	s.figures.addWorkers(now, lines)
	return sum, nil
}

func readingOf(w *admin.Worker) reading {
	r := w.GetReport()
	others := r.GetFilesForeseen() + r.GetFilesLate() + r.GetFilesMissed()
	return reading{all: r.GetFilesLocal() + others, found: r.GetFilesLocal(), ahead: r.GetFilesForeseen()}
}

// since returns what was read after was. A worker that counts less than it did was started anew.
func (r reading) since(was reading) reading {
	if r.all < was.all || r.found < was.found || r.ahead < was.ahead {
		return r
	}
	return reading{r.all - was.all, r.found - was.found, r.ahead - was.ahead}
}

func (r reading) plus(o reading) reading {
	return reading{r.all + o.all, r.found + o.found, r.ahead + o.ahead}
}
