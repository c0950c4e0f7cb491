package web

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/web/charts"
	"github.com/forerunner-build/forerunner/web/text"
)

// A workersView is one page of workers, and all drains.
type workersView struct {
	rows[*admin.Worker]
	Programs []program
	Drains   []*admin.ActiveDrain
	Lost     []*admin.LostWorker
	Storage  *admin.Store // the scheduler's own; nil: it has none
}

// A workerPages shows workers, and drains them.
type workerPages struct {
	*renderer
	*source
}

func (p *workerPages) list(ctx context.Context, r *http.Request) (any, error) {
	asked, which, err := askedFor(r)
	if err != nil {
		return nil, err
	}
	token := r.FormValue("page")
	list, err := ask(ctx, p.source, "workers "+asked+" "+token, func(ctx context.Context) (*admin.ListWorkersResponse, error) {
		return p.scheduler.ListWorkers(ctx, &admin.ListWorkersRequest{Pattern: which, PageSize: pageRows, PageToken: token})
	})
	if err != nil {
		return nil, err
	}
	v := workersView{rows: rows[*admin.Worker]{list.GetWorkers(), asked, list.GetNextPageToken()}}
	v.Programs, v.Lost = programs(list.GetWorkers()), list.GetLost()
	own, err := ask(ctx, p.source, "own storage", func(ctx context.Context) (*admin.ListStoresResponse, error) {
		return p.scheduler.ListStores(ctx, &admin.ListStoresRequest{Own: true})
	})
	if err != nil {
		return nil, err
	}
	for _, store := range own.GetStores() {
		v.Storage = store
	}
	v.Drains = list.GetDrains()
	return v, nil
}

func (p *workerPages) drain(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, which *admin.Pattern) error {
		_, err := p.scheduler.Drain(ctx, &admin.DrainRequest{Pattern: which})
		return err
	})
}

func (p *workerPages) undrain(w http.ResponseWriter, r *http.Request) {
	p.change(w, r, func(ctx context.Context, which *admin.Pattern) error {
		_, err := p.scheduler.Undrain(ctx, &admin.UndrainRequest{Pattern: which})
		return err
	})
}

// change does something with the pattern of a form and goes back to the workers.
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
	p.source.forget()
	http.Redirect(w, r, "/workers", http.StatusSeeOther)
}

// A program is a worker as operators know it: all positions of one process, which are the workers
// of the scheduler.
type program struct {
	*admin.Worker                   // one of them
	Identity      map[string]string // less the position
	ID            string            // tells it from all others of the page, over time
	Positions     []position
	States        []stateCount
}

type position struct {
	*admin.Worker
	Position string // empty: there is one only
}

// Query finds the operations of its action.
func (p position) Query() template.URL {
	return template.URL(url.Values{"pattern": {"stage=executing,action=" + p.GetAction()}}.Encode())
}

type stateCount struct {
	State string
	Count int
}

// programs brings together positions of one process that are next to each other.
func programs(list []*admin.Worker) []program {
	var all []program
	for _, w := range list {
		id := names.WithoutPosition(w.GetIdentity())
		name := text.Pairs(id)
		if len(all) == 0 || all[len(all)-1].ID != name {
			all = append(all, program{Worker: w, Identity: id, ID: name})
		}
		p := &all[len(all)-1]
		p.Positions = append(p.Positions, position{w, w.GetIdentity()[names.PositionKey]})
	}
	for i := range all {
		all[i].States = statesOf(all[i].Positions)
	}
	return all
}

// statesOf counts positions by their state, in the order of the schema.
func statesOf(list []position) []stateCount {
	counts := map[admin.Worker_State]int{}
	for _, p := range list {
		counts[p.GetState()]++
	}
	var states []stateCount
	for _, s := range slices.SortedFunc(maps.Keys(counts), func(a, b admin.Worker_State) int { return cmp.Compare(a, b) }) {
		states = append(states, stateCount{stateText(s), counts[s]})
	}
	return states
}

// CanDrain reports whether some of it takes work unless it is drained.
func (p program) CanDrain() bool {
	return slices.ContainsFunc(p.Positions, func(x position) bool { return !x.GetDrainedByPattern() })
}

// Suspension says why it gets nothing for a while, or one action only; empty: it gets what it asks for.
func (p program) Suspension() string { return text.Suspension(p.Worker) }

// Store is how full its store is; nil: it does not say.
func (p program) Store() *charts.Meter {
	r := p.GetReport()
	if r.GetStoreMaxBytes() == 0 {
		return nil
	}
	share := float64(r.GetStoreBytes()) / float64(r.GetStoreMaxBytes())
	m := charts.MeterOf(fmt.Sprintf("%s full, %d blobs", text.Percent(share), r.GetStoreBlobs()), share)
	return &m
}

// StoreHits is the share of the files that commands opened which its store had.
func (p program) StoreHits() string {
	r := p.GetReport()
	return rate(r.GetFilesLocal(), r.GetFilesLocal()+r.GetFilesForeseen()+r.GetFilesLate()+r.GetFilesMissed())
}

// Ahead is the share of the others that came before they were asked for.
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
