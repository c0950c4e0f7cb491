package pages

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/proto/admin"
)

// A shownPage is a measured page.
type shownPage struct {
	row, path string
	live      bool // measure its stream until the first update
}

// shownPages returns all pages; operation is the operation whose page is shown.
func shownPages(operation string) []shownPage {
	return []shownPage{
		{row: "overview", path: "/"},
		{row: "invocations", path: "/invocations"},
		{row: "operations", path: "/operations"},
		{row: "search", path: "/operations?pattern=target%3D//lib/package_7/*"},
		{row: "operation", path: "/" + operation},
		{row: "workers", path: "/workers"},
		{row: "quotas", path: "/quotas"},
		{row: "update", path: "/", live: true},
	}
}

// A pageLoad is the time and size of one load of a page.
type pageLoad struct {
	took  time.Duration
	bytes int
}

// A pagesViewer requests pages.
type pagesViewer struct {
	farm   *pagesFarm
	client *http.Client
	pages  []shownPage
}

// newViewer returns a viewer that has loaded each page once.
func (f *pagesFarm) newViewer(ctx context.Context, pages []shownPage) (*pagesViewer, error) {
	v := &pagesViewer{farm: f, client: &http.Client{Transport: &http.Transport{}}, pages: pages}
	return v, v.look(ctx, map[string][]pageLoad{})
}

func (v *pagesViewer) close() { v.client.CloseIdleConnections() }

// during keeps the overview open and loads the pages over and over while do runs.
func (v *pagesViewer) during(
	ctx context.Context, loads map[string][]pageLoad, do func(context.Context) (float64, error),
) (rate float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	g, ctx := errgroup.WithContext(ctx)
	unlessOver := func(err error) error {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	g.Go(func() error { return unlessOver(v.follow(ctx)) })
	g.Go(func() error {
		for {
			if err := v.look(ctx, loads); err != nil {
				return unlessOver(err)
			}
			if err := pause.For(ctx, v.farm.shape.pause); err != nil {
				return nil
			}
		}
	})
	g.Go(func() (err error) {
		defer stop()
		rate, err = do(ctx)
		return err
	})
	return rate, g.Wait()
}

// look loads each page once.
func (v *pagesViewer) look(ctx context.Context, loads map[string][]pageLoad) error {
	for _, page := range v.pages {
		load, err := v.load(ctx, page)
		if err != nil {
			return fmt.Errorf("page %s: %w", page.row, err)
		}
		loads[page.row] = append(loads[page.row], load)
	}
	return nil
}

func (v *pagesViewer) load(ctx context.Context, page shownPage) (l pageLoad, err error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	began := time.Now()
	body, err := v.open(ctx, page)
	if err != nil {
		return l, err
	}
	defer body.Close()
	if page.live {
		l.bytes, err = readEvent(bufio.NewReader(body))
	} else {
		var n int64
		n, err = io.Copy(io.Discard, body)
		l.bytes = int(n)
	}
	l.took = time.Since(began)
	return l, err
}

func (v *pagesViewer) open(ctx context.Context, page shownPage) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.farm.address+page.path, nil)
	if err != nil {
		return nil, err
	}
	if page.live {
		req.Header.Set("Accept", "text/event-stream")
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("it answers %s", resp.Status)
	}
	return resp.Body, nil
}

// follow keeps the overview open until ctx ends.
func (v *pagesViewer) follow(ctx context.Context) error {
	body, err := v.open(ctx, shownPage{path: "/", live: true})
	if err != nil {
		return err
	}
	defer body.Close()
	for r := bufio.NewReader(body); ; {
		if _, err := readEvent(r); err != nil {
			return err
		}
	}
}

// readEvent reads one server-sent event and returns its size.
func readEvent(r *bufio.Reader) (bytes int, err error) {
	for {
		line, err := r.ReadString('\n')
		bytes += len(line)
		if err != nil || line == "\n" {
			return bytes, err
		}
	}
}

// A pageQuestion is a request that pages make to the scheduler.
type pageQuestion struct {
	row string
	ask func(ctx context.Context, s admin.SchedulerServer, operation string) error
}

func pageQuestions() []pageQuestion {
	return []pageQuestion{
		{"queues", func(ctx context.Context, s admin.SchedulerServer, _ string) error {
			_, err := s.ListQueues(ctx, &admin.ListQueuesRequest{MaxBranches: 500})
			return err
		}},
		{"operations", func(ctx context.Context, s admin.SchedulerServer, _ string) error {
			_, err := s.ListOperations(ctx, &admin.ListOperationsRequest{PageSize: 100})
			return err
		}},
		{"search", func(ctx context.Context, s admin.SchedulerServer, _ string) error {
			_, err := s.ListOperations(ctx, &admin.ListOperationsRequest{
				PageSize: 100, Pattern: &admin.Pattern{Attributes: map[string]string{"target": "//lib/package_7/*"}},
			})
			return err
		}},
		{"operation", func(ctx context.Context, s admin.SchedulerServer, operation string) error {
			_, err := s.GetOperation(ctx, &admin.GetOperationRequest{Name: operation})
			return err
		}},
		{"workers", func(ctx context.Context, s admin.SchedulerServer, _ string) error {
			_, err := s.ListWorkers(ctx, &admin.ListWorkersRequest{PageSize: 100})
			return err
		}},
		{"quotas", func(ctx context.Context, s admin.SchedulerServer, _ string) error {
			_, err := s.ListQuotas(ctx, &admin.ListQuotasRequest{})
			return err
		}},
	}
}

// questionRuns is how often each request is made to measure how long others wait.
const questionRuns = 10

// waits returns, for each request, the longest wait of another short call to the scheduler, in ms.
// Workers make no calls meanwhile.
func (f *pagesFarm) waits(ctx context.Context) (map[string][]float64, error) {
	f.calling.Lock()
	defer f.calling.Unlock()
	waits := map[string][]float64{}
	for range questionRuns {
		for _, q := range pageQuestions() {
			began, over, longest := make(chan struct{}), make(chan struct{}), make(chan time.Duration, 1)
			go func() { longest <- f.longestWait(ctx, began, over) }()
			<-began
			err := q.ask(ctx, f.sched.Admin(), f.hanging)
			close(over)
			waits[q.row] = append(waits[q.row], report.Milliseconds(<-longest))
			if err != nil {
				return nil, fmt.Errorf("ask for %s: %w", q.row, err)
			}
		}
	}
	return waits, nil
}

// longestWait requests an operation that does not exist, repeatedly until over is closed, and
// returns the longest duration. It closes began after the first request.
func (f *pagesFarm) longestWait(ctx context.Context, began chan<- struct{}, over <-chan struct{}) (longest time.Duration) {
	s, nothing := f.sched.Admin(), &admin.GetOperationRequest{}
	_, _ = s.GetOperation(ctx, nothing)
	close(began)
	for {
		asked := time.Now()
		_, _ = s.GetOperation(ctx, nothing)
		longest = max(longest, time.Since(asked))
		select {
		case <-over:
			return longest
		default:
		}
	}
}
