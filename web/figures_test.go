package web

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

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/records/record"
)

// A growingFarm has one worker, half of whose slots are busy, and whose commands read ten files a minute.
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

// silent are hints that do not answer until they are told.
type silent struct {
	fakeProfiles
	answers atomic.Bool
}

func (s *silent) Get(ctx context.Context, k record.Key) ([]byte, error) {
	if !s.answers.Load() {
		return nil, errors.New("connection refused")
	}
	return s.fakeProfiles.Get(ctx, k)
}

// running has a Site take samples; stop is what the program's end does.
func running(t *testing.T, o Options) (site *Site, stop func()) {
	t.Helper()
	site, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- site.Run(ctx) }()
	return site, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestFiguresOverRestarts has a farm of a day, of which half an hour is a gap, and one after a crash, that loses what was not kept.
func TestFiguresOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := fakeProfiles{}
		o := Options{Scheduler: growingFarm{start: time.Now()}, Figures: kept}
		_, stop := running(t, o)
		time.Sleep(3 * time.Hour)
		stop()
		time.Sleep(30 * time.Minute)
		site, crash := running(t, o)
		time.Sleep(10*time.Minute + 3*time.Second)
		now := time.Now()
		hour := site.queues.figures.plots(now, 0)
		for i, want := range []struct{ title, now string }{
			{"Waiting actions", "7"}, {"Longest wait", "0s"}, {"Slots busy", "50 %"}, {"Workers", "1"}, {"Found on workers", "50 %"}, {"Fetched ahead", "80 %"},
		} {
			if p := hour[i]; p.Title != want.title || p.Now != want.now || strings.Count(p.Line, "M") != 2 {
				t.Errorf("%s: now %s, line %s", p.Title, p.Now, p.Line)
			}
		}
		if p := hour[0]; p.Width != 359 || p.Top != 7 || !strings.HasPrefix(p.Line, "M0,0L1,0L2,0") {
			t.Errorf("%+v", p)
		}
		line := site.queues.figures.line("/host=v", now, 0)
		if strings.Count(line.Line, "M") != 2 || line.Mean != .5 || !strings.HasPrefix(line.Line, "M0,30L1,30") {
			t.Errorf("line of a worker: %+v", line)
		}
		synctest.Wait()
		backup := maps.Clone(kept)
		if len(backup) != 2 {
			t.Errorf("%d records are kept", len(backup))
		}
		crash()
		o.Figures = backup
		site, stop = running(t, o)
		synctest.Wait()
		lost := site.queues.figures.plots(now, 0)[0]
		if n := strings.Count(hour[0].Line, ",") - strings.Count(lost.Line, ","); n < 0 || n > int(savePeriod/samplePeriod) {
			t.Errorf("a crash loses %d samples", n)
		}
		stop()
	})
}

// TestFiguresThatCannotBeRead has damage, which is warned of, and a store that answers late.
func TestFiguresThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		kept := &silent{fakeProfiles: fakeProfiles{}}
		kept.answers.Store(true)
		o := Options{Scheduler: growingFarm{start: time.Now()}, Figures: kept, Logger: zap.New(core)}
		_, stop := running(t, o)
		time.Sleep(20 * time.Minute)
		stop()
		kept.answers.Store(false)
		site, stop := running(t, o)
		time.Sleep(25 * time.Second)
		if p := site.queues.figures.plots(time.Now(), 0)[0]; p.Line != "" {
			t.Errorf("before the store answers: %s", p.Line)
		}
		kept.answers.Store(true)
		time.Sleep(25 * time.Second)
		if p := site.queues.figures.plots(time.Now(), 0)[0]; strings.Count(p.Line, ",") < 120 || logged.Len() > 0 {
			t.Errorf("when it answers: %s, %v", p.Line, logged.All())
		}
		stop()
		for k := range kept.fakeProfiles {
			kept.fakeProfiles[k][20] ^= 1
		}
		site, stop = running(t, o)
		synctest.Wait()
		if p := site.queues.figures.plots(time.Now(), 1)[0]; strings.Count(p.Line, ",") != 1 {
			t.Errorf("of what is damaged: %s", p.Line)
		}
		if n := logged.FilterMessageSnippet("begin anew").Len(); n != 2 || logged.Len() != 2 {
			t.Errorf("logged %v", logged.All())
		}
		stop()
		kept.answers.Store(false)
		site, stop = running(t, o)
		time.Sleep(2 * time.Minute)
		if p := site.queues.figures.plots(time.Now(), 0)[0]; p.Line == "" || logged.Len() != 3 {
			t.Errorf("a store that never answers: %s, logged %v", p.Line, logged.All())
		}
		stop()
	})
}

// TestFiguresOnDisk compares bounds with those in docs/ARCHITECTURE.md.
func TestFiguresOnDisk(t *testing.T) {
	if got := farmShape.MaxBytes(); got > 276<<10 {
		t.Errorf("the farm takes up to %d bytes", got)
	}
	if got := workerShape.LinesMaxBytes(maxLines); got > 944<<10 {
		t.Errorf("workers take up to %d bytes", got)
	}
}

// TestReadings has a worker that counts from nothing again.
func TestReadings(t *testing.T) {
	was := reading{10, 8, 1}
	if got := (reading{15, 9, 3}).since(was); got != (reading{5, 1, 2}) {
		t.Errorf("%+v", got)
	}
	if got := (reading{12, 7, 1}).since(was); got != (reading{12, 7, 1}) {
		t.Errorf("after a restart: %+v", got)
	}
}

// TestSpans has pages of which nothing is known yet, and chooses among times.
func TestSpans(t *testing.T) {
	b := newBrowser(t, false)
	page := b.get("/?span=two-weeks", 200)
	expect(t, page, "Nothing is known of the last two weeks yet.", `<a href="/?span=hour">Hour</a>`, `<a href="/?span=two-weeks" aria-current="true">Two weeks</a>`)
	expect(t, b.get("/workers?pattern=host%3Dv", 200), "no line yet", `<a href="/workers?pattern=host%3Dv&amp;span=day">Day</a>`, `aria-current="true">Hour<`, "span=hour")
	expect(t, b.get("/?span=year", 400), "it is hour, day or two-weeks")
	b.get("/workers?span=year", 400)
	b.site.sampler.sample(t.Context())
	expect(t, b.get("/?span=day", 200), "1 day ago</span><span>12 hours ago</span><span>now", `<path class="line" d="M359,`,
		"Slots busy over the last day: now 80 %, on average 80 %, scale from 0 to 100 %", "Nothing is known of the last day yet.", "<b>–</b>")
	expect(t, b.get("/workers?span=day", 200), `aria-label="Slots busy over the last day: on average 17 %, scale from 0 to 100 %"`, "average 17 %", "over the last day, from none to all")
}
