package plots

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/answers"
)

// A growingFarm has one worker with half of its slots busy. Its commands read ten files a minute.
type growingFarm struct {
	admin.UnimplementedSchedulerServer
	start time.Time
}

func (g growingFarm) ListQueues(context.Context, *admin.ListQueuesRequest) (*admin.ListQueuesResponse, error) {
	return &admin.ListQueuesResponse{Queues: []*admin.Queue{{Workers: 1, Slots: 4, SlotsBusy: 2, Queued: 7}}}, nil
}

func (g growingFarm) ListWorkers(context.Context, *admin.ListWorkersRequest) (*admin.ListWorkersResponse, error) {
	n := int64(time.Since(g.start) / time.Minute)
	return &admin.ListWorkersResponse{Workers: []*admin.Worker{{
		Identity: map[string]string{"host": "v"}, Slots: 4, Actions: 2,
		Report: &live.Report{FilesLocal: 1000 + 5*n, FilesForeseen: 4 * n, FilesLate: n},
	}}}, nil
}

// hints has records by digest.
type hints map[digest.Digest][]byte

func (h hints) Get(_ context.Context, k record.Key) ([]byte, error) {
	if value, ok := h[k.Digest]; ok {
		return value, nil
	}
	return nil, record.ErrNotFound
}

func (h hints) Put(_ context.Context, k record.Key, value []byte) error {
	h[k.Digest] = value
	return nil
}

// silent hints do not answer until the test lets them.
type silent struct {
	hints
	answers atomic.Bool
}

func (s *silent) Get(ctx context.Context, k record.Key) ([]byte, error) {
	if !s.answers.Load() {
		return nil, errors.New("connection refused")
	}
	return s.hints.Get(ctx, k)
}

// running starts a Sampler that fills Plots; stop does the same as the end of the program.
func running(t *testing.T, scheduler admin.SchedulerServer, kept record.Hints, log *zap.Logger) (p *Plots, stop func()) {
	t.Helper()
	p = New(kept, "", log)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- NewSampler(answers.New(scheduler), p).Run(ctx) }()
	return p, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestFiguresOverRestarts restarts a farm of a day after a gap of half an hour, and again after a
// crash, which loses only the samples that were not stored.
func TestFiguresOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := hints{}
		of, log := growingFarm{start: time.Now()}, zap.NewNop()
		_, stop := running(t, of, kept, log)
		time.Sleep(3 * time.Hour)
		stop()
		time.Sleep(30 * time.Minute)
		drawn, crash := running(t, of, kept, log)
		time.Sleep(10*time.Minute + 3*time.Second)
		now := time.Now()
		hour := drawn.Farm(now, 0)
		for i, want := range []struct{ title, now string }{
			{"Waiting actions", "7"}, {"Longest wait", "0s"}, {"Slots busy", "50 %"}, {"Workers", "1"}, {"Local files", "50 %"}, {"Foreseen files", "80 %"},
		} {
			if p := hour[i]; p.Title != want.title || p.Now != want.now || strings.Count(p.Line, "M") != 2 {
				t.Errorf("%s: now %s, line %s", p.Title, p.Now, p.Line)
			}
		}
		if p := hour[0]; p.Width != 359 || p.Top != 7 || !strings.HasPrefix(p.Line, "M0,0L1,0L2,0") {
			t.Errorf("%+v", p)
		}
		line := drawn.Worker("/host=v", now, 0)
		if strings.Count(line.Line, "M") != 2 || line.Mean != .5 || !strings.HasPrefix(line.Line, "M0,30L1,30") {
			t.Errorf("line of a worker: %+v", line)
		}
		synctest.Wait()
		backup := maps.Clone(kept)
		if len(backup) != 2 {
			t.Errorf("%d records are kept", len(backup))
		}
		crash()
		drawn, stop = running(t, of, backup, log)
		synctest.Wait()
		lost := drawn.Farm(now, 0)[0]
		if n := strings.Count(hour[0].Line, ",") - strings.Count(lost.Line, ","); n < 0 || n > int(savePeriod/samplePeriod) {
			t.Errorf("a crash loses %d samples", n)
		}
		stop()
	})
}

// TestFiguresThatCannotBeRead has damaged charts, which must cause a warning, and a store that
// answers late.
func TestFiguresThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		kept := &silent{hints: hints{}}
		kept.answers.Store(true)
		of, log := growingFarm{start: time.Now()}, zap.New(core)
		_, stop := running(t, of, kept, log)
		time.Sleep(20 * time.Minute)
		stop()
		kept.answers.Store(false)
		drawn, stop := running(t, of, kept, log)
		time.Sleep(25 * time.Second)
		if p := drawn.Farm(time.Now(), 0)[0]; p.Line != "" {
			t.Errorf("before the store answers: %s", p.Line)
		}
		kept.answers.Store(true)
		time.Sleep(25 * time.Second)
		if p := drawn.Farm(time.Now(), 0)[0]; strings.Count(p.Line, ",") < 120 || logged.Len() > 0 {
			t.Errorf("when it answers: %s, %v", p.Line, logged.All())
		}
		stop()
		for k := range kept.hints {
			kept.hints[k][20] ^= 1
		}
		drawn, stop = running(t, of, kept, log)
		synctest.Wait()
		if p := drawn.Farm(time.Now(), 1)[0]; strings.Count(p.Line, ",") != 1 {
			t.Errorf("of what is damaged: %s", p.Line)
		}
		if n := logged.FilterMessageSnippet("start empty").Len(); n != 2 || logged.Len() != 2 {
			t.Errorf("logged %v", logged.All())
		}
		stop()
		kept.answers.Store(false)
		drawn, stop = running(t, of, kept, log)
		time.Sleep(2 * time.Minute)
		if p := drawn.Farm(time.Now(), 0)[0]; p.Line == "" || logged.Len() != 3 {
			t.Errorf("a store that never answers: %s, logged %v", p.Line, logged.All())
		}
		stop()
	})
}

// TestFiguresOnDisk compares the limits with those in docs/ARCHITECTURE.md.
func TestFiguresOnDisk(t *testing.T) {
	if got := farmShape.MaxBytes(); got > 276<<10 {
		t.Errorf("the farm takes up to %d bytes", got)
	}
	if got := workerShape.LinesMaxBytes(maxLines); got > 944<<10 {
		t.Errorf("workers take up to %d bytes", got)
	}
}

// TestReadings has a worker whose counters restart from zero.
func TestReadings(t *testing.T) {
	was := reading{10, 8, 1}
	if got := (reading{15, 9, 3}).since(was); got != (reading{5, 1, 2}) {
		t.Errorf("%+v", got)
	}
	if got := (reading{12, 7, 1}).since(was); got != (reading{12, 7, 1}) {
		t.Errorf("after a restart: %+v", got)
	}
}
