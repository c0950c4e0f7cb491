package web

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/plots"
	"github.com/forerunner-build/forerunner/web/text"
)

// A workersView is one page of the list of workers, and all drains.
type workersView struct {
	rows[*admin.Worker]
	Programs []program
	Drains   []*admin.ActiveDrain
	Lost     []*admin.LostWorker
	Storage  *admin.Store // the scheduler's own store; nil if it has none
	Spans    []choice
	Span     charts.Span // of the charts
}

// NextQuery returns the query of the next page.
func (v workersView) NextQuery() template.URL {
	return template.URL(url.Values{"pattern": {v.Pattern}, "page": {v.Next}, spanField: {v.Span.Name}}.Encode())
}

// A workerPages serves the page of workers, and drains workers.
type workerPages struct {
	*renderer
	*answers.Source
	plots *plots.Plots
}

func (p *workerPages) list(ctx context.Context, r *http.Request) (any, error) {
	span, spans, err := spanOf(r)
	if err != nil {
		return nil, err
	}
	asked, which, err := askedFor(r)
	if err != nil {
		return nil, err
	}
	// The quick request comes first, because the pause after a request is longer than it.
	own, err := answers.Get(ctx, p.Source, "own storage", func(ctx context.Context) (*admin.ListStoresResponse, error) {
		return p.Scheduler.ListStores(ctx, &admin.ListStoresRequest{Own: true})
	})
	if err != nil {
		return nil, err
	}
	token := r.FormValue("page")
	list, err := answers.Get(ctx, p.Source, "workers "+asked+" "+token, func(ctx context.Context) (*admin.ListWorkersResponse, error) {
		return p.Scheduler.ListWorkers(ctx, &admin.ListWorkersRequest{Pattern: which, PageSize: pageRows, PageToken: token, Positions: true})
	})
	if err != nil {
		return nil, err
	}
	v := workersView{rows: rows[*admin.Worker]{list.GetWorkers(), asked, list.GetNextPageToken()}}
	v.Spans, v.Span = spans, charts.Spans()[span]
	v.Programs, v.Lost = p.programs(list.GetWorkers(), span), list.GetLost()
	for _, store := range own.GetStores() {
		v.Storage = store
	}
	v.Drains = list.GetDrains()
	return v, nil
}

func (p *workerPages) drain(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, which *admin.Pattern) error {
		_, err := p.Scheduler.Drain(ctx, &admin.DrainRequest{Pattern: which})
		return err
	})
}

func (p *workerPages) undrain(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, which *admin.Pattern) error {
		_, err := p.Scheduler.Undrain(ctx, &admin.UndrainRequest{Pattern: which})
		return err
	})
}

// change calls do with the pattern of a form, and redirects to the workers.
func (p *workerPages) change(w http.ResponseWriter, r *http.Request, do func(context.Context, *admin.Pattern) error) {
	_, which, err := askedFor(r)
	if err == nil && which == nil {
		err = status.Error(codes.InvalidArgument, "give a pattern, such as host=build-*")
	}
	if err == nil {
		err = do(r.Context(), which)
	}
	if err != nil {
		p.fail(w, r, "workers", err)
		return
	}
	p.Forget()
	http.Redirect(w, r, "/workers", http.StatusSeeOther)
}

// A program is a worker process in the list.
type program struct {
	*admin.Worker
	Line charts.Plot // share of busy slots
}

func (p *workerPages) programs(list []*admin.Worker, span int) (all []program) {
	for _, w := range list {
		all = append(all, program{w, p.plots.Worker(plots.IDOf(w), time.Now(), span)})
	}
	return all
}

// ID identifies the worker on the page over time.
func (p program) ID() string { return plots.IDOf(p.Worker) }

// Slots returns how many of its slots are busy.
func (p program) Slots() charts.Meter {
	busy, all := plots.BusyOf(p.Worker)
	return charts.MeterOf(fmt.Sprintf("%d of %s busy", busy, plural.Of(all, "slot")), float64(busy)/float64(all))
}

// Doing returns its actions.
func (p program) Doing() (list []doing) {
	for _, position := range p.GetPositions() {
		if position.GetAction() != "" {
			list = append(list, doing{position})
		}
	}
	return list
}

// A doing is an action on a worker.
type doing struct{ *admin.Position }

// Query returns the query that finds the action's operations.
func (d doing) Query() template.URL {
	return template.URL(url.Values{"pattern": {"stage=executing,action=" + d.GetAction()}}.Encode())
}

// CanDrain reports whether a drain would change anything: some position of the worker is not
// drained yet.
func (p program) CanDrain() bool { return !p.GetDrainedByPattern() }

// Hindrance says why the scheduler gives the worker no actions for a while, or only one; empty if
// unknown.
func (p program) Hindrance() string { return text.Hindrance(p.Worker) }

// Store returns how full its store is; nil if unknown.
func (p program) Store() *charts.Meter {
	r := p.GetReport()
	if r.GetStoreMaxBytes() == 0 {
		return nil
	}
	share := float64(r.GetStoreBytes()) / float64(r.GetStoreMaxBytes())
	m := charts.MeterOf(fmt.Sprintf("%s full, %s", text.Percent(share), plural.Of(r.GetStoreBlobs(), "blob")), share)
	return &m
}

// StoreHits returns the share of opened files that its store already had.
func (p program) StoreHits() string {
	r := p.GetReport()
	return rate(r.GetFilesLocal(), r.GetFilesLocal()+r.GetFilesForeseen()+r.GetFilesLate()+r.GetFilesMissed())
}

// Ahead returns the share of the other opened files that arrived before they were requested.
func (p program) Ahead() string {
	r := p.GetReport()
	return rate(r.GetFilesForeseen(), r.GetFilesForeseen()+r.GetFilesLate()+r.GetFilesMissed())
}

func rate(part, all int64) string {
	if all <= 0 {
		return dash("")
	}
	return text.Percent(min(max(float64(part)/float64(all), 0), 1))
}
