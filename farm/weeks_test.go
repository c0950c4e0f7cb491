package farm

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/completed"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/web"
)

// A lostStorage has none of its blobs any more.
type lostStorage struct{}

func (lostStorage) Read(context.Context, digest.Digest) ([]byte, error) { return nil, cas.ErrNotFound }

func (lostStorage) GetActionResult(context.Context, digest.Digest) (*repb.ActionResult, error) {
	return nil, cas.ErrNotFound
}

// A paged is a scheduler with its pages and records, which needs no network.
type paged struct {
	*testing.T
	recorder *finished.Recorder
	pages    http.Handler
}

// withPages runs a scheduler with pages on a folder and a shared state while do uses it. A larger
// term means that it has taken over. held are the operations that workers had before.
func withPages(t *testing.T, folder string, shared records.Durable, term uint64, do func(paged), held ...event.Held) {
	t.Helper()
	s := &Scheduler{Data: folder, Lease: "main", Logger: zap.NewNop(), Kept: completed.Settings{Keep: 14 * 24 * time.Hour, Size: "2G"}}
	o := scheduler.ServerOptions{Term: term, Storage: func(string, digest.Function) scheduler.Storage { return lostStorage{} }, Held: held}
	kept, err := s.openCompleted(t.Context(), schedulerOf{registry: prometheus.NewRegistry(), state: &state.Opened{Shared: shared}}, &o)
	if err != nil {
		t.Fatal(err)
	}
	server, err := scheduler.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	site, err := web.New(web.Options{
		Scheduler: server.Admin(), Operations: server.Operations(),
		Blobs: func(string, digest.Function) web.Blobs { return lostStorage{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running errgroup.Group
	running.Go(func() error { return server.Run(ctx) })
	running.Go(func() error { kept.Run(ctx); return nil })
	do(paged{t, o.Finished, site.Handler()})
	stop()
	if err := running.Wait(); err != nil {
		t.Error(err)
	}
	if err := kept.Close(); err != nil {
		t.Error(err)
	}
}

// fails checks that the message of a failed action has this link.
func (p paged) fails(link string) {
	op := &request.Operation{Name: strings.TrimPrefix(link, "/"), Instance: "main", Digest: digest.Of(digest.SHA256, []byte("action"))}
	op.Request.Target, op.Request.ToolInvocation = "//a:broken", "build-1"
	at := time.Now()
	p.recorder.Add(&event.Status{
		Operation: op, Stage: repb.ExecutionStage_COMPLETED, Queued: at.Add(-time.Minute), Started: at.Add(-time.Second), Ended: at,
		Worker: `{"host":"w"}`, Attempts: 1, Response: &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 139}},
	}, "")
	time.Sleep(time.Second)
}

// open opens a link.
func (p paged) open(path string, status int, want ...string) {
	p.Helper()
	answer := httptest.NewRecorder()
	p.pages.ServeHTTP(answer, httptest.NewRequestWithContext(p.Context(), http.MethodGet, path, nil))
	if answer.Code != status {
		p.Errorf("%s: %d, want %d", path, answer.Code, status)
	}
	for _, text := range want {
		if !strings.Contains(answer.Body.String(), text) {
			p.Errorf("%s lacks %q:\n%s", path, text, answer.Body)
		}
	}
}

// TestLinksForTwoWeeks: links in the message of a failed build work 13 days later, after a restart
// and after a scheduler of another machine has taken over. After 15 days they say that the record
// is gone, and why.
func TestLinksForTwoWeeks(t *testing.T) {
	folder, other, shared := t.TempDir(), t.TempDir(), records.NewMemory(0)
	synctest.Test(t, func(t *testing.T) {
		link, build := "/operations/5f0a6b1e", "/builds/build-1"
		action := "/actions/sha256/" + digest.Of(digest.SHA256, []byte("action")).String() + "?instance=main"
		withPages(t, folder, shared, 1, func(p paged) {
			p.fails(link)
			p.open(link, 200, "Failed: exit code 139, as a shell reports SIGSEGV")
		})
		time.Sleep(13 * 24 * time.Hour)
		for i, data := range []string{folder, other} {
			withPages(t, data, shared, uint64(i+1), func(p paged) {
				time.Sleep(time.Second)
				p.open(link, 200, "Failed: exit code 139, as a shell reports SIGSEGV", "//a:broken")
				p.open(action, 200, "Failed: exit code 139")
				p.open(build, 200, "//a:broken")
			})
		}
		time.Sleep(2 * 24 * time.Hour)
		withPages(t, other, shared, 2, func(p paged) {
			time.Sleep(2 * time.Hour) // the clock is right for long enough
			p.open(link, 404, "ended too long ago", "records are kept for 14 days")
			p.open(build, 404, "ended too long ago")
		})
	})
}

// TestRestoredAndLost restarts a scheduler whose list of running operations has one that had ended:
// it keeps its record. Another one whose worker does not come back gets one.
func TestRestoredAndLost(t *testing.T) {
	folder, shared := t.TempDir(), records.NewMemory(0)
	synctest.Test(t, func(t *testing.T) {
		ended, lost := "/operations/5f0a6b1e", "/operations/5f0a6b1f"
		withPages(t, folder, shared, 1, func(p paged) { p.fails(ended) })
		var held []event.Held
		for i, link := range []string{ended, lost} {
			worker := fmt.Sprintf(`{"host":"w%d"}`, i)
			op := &request.Operation{Name: strings.TrimPrefix(link, "/"), Instance: "main", Digest: digest.Of(digest.SHA256, []byte(link))}
			op.Request.Target = "//a:held"
			held = append(held, event.Held{
				Operation: op, Queued: time.Now(), Started: time.Now(), Attempts: 1, Worker: worker, ID: map[string]string{"host": worker},
			})
		}
		withPages(t, folder, shared, 1, func(p paged) {
			p.open(lost, 200, "the scheduler waits for this worker")
			time.Sleep(5 * time.Minute)
			p.open(ended, 200, "Failed: exit code 139")
			p.open(lost, 200, "//a:held", "how it ended is not known", "worker host=w1 did not come back with it")
		}, held...)
	})
}

// TestRecordsInMemory: a scheduler that cannot use its folder of records hands its own to others,
// and has theirs once it can.
func TestRecordsInMemory(t *testing.T) {
	folder, other, shared := t.TempDir(), t.TempDir(), records.NewMemory(0)
	synctest.Test(t, func(t *testing.T) {
		one, two := "/operations/5f0a6b1e", "/operations/5f0a6b1f"
		withPages(t, folder, shared, 1, func(p paged) { p.fails(one) })
		used, err := history.Open(filepath.Join(other, durableFolder, historyFolder), history.Options{})
		if err != nil {
			t.Fatal(err)
		}
		withPages(t, other, shared, 2, func(p paged) { p.fails(two) })
		if err := used.Close(); err != nil {
			t.Fatal(err)
		}
		for i, data := range []string{other, folder} {
			withPages(t, data, shared, uint64(i+3), func(p paged) {
				p.open(one, 200)
				if data == folder {
					p.open(two, 200)
				}
			})
		}
	})
}

// TestRelayNeedsALease: without one, two schedulers may serve at once.
func TestRelayNeedsALease(t *testing.T) {
	s := &Scheduler{Data: t.TempDir(), Logger: zap.NewNop()}
	for _, lease := range []string{"", "main"} {
		s.Lease = lease
		o, err := s.completedOptions(&state.Opened{Shared: records.NewMemory(0)})
		if err != nil || (o.Shared != nil) != (lease != "") {
			t.Errorf("lease %q: %v, %v", lease, o.Shared, err)
		}
	}
}
