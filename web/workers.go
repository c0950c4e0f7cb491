package web

import (
	"context"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/admin"
)

// A workersView is one page of workers, and all drains.
type workersView struct {
	rows[*admin.Worker]
	Programs []program
	Drains   []*admin.ActiveDrain
	Lost     []*admin.LostWorker
	Storage  *admin.Store // the scheduler's own; nil: it has none
}

func (s *Site) workers(ctx context.Context, r *http.Request) (any, error) {
	text, p, err := askedFor(r)
	if err != nil {
		return nil, err
	}
	token := r.FormValue("page")
	list, err := ask(ctx, s.source, "workers "+text+" "+token, func(ctx context.Context) (*admin.ListWorkersResponse, error) {
		return s.options.Scheduler.ListWorkers(ctx, &admin.ListWorkersRequest{Pattern: p, PageSize: pageRows, PageToken: token})
	})
	if err != nil {
		return nil, err
	}
	v := workersView{rows: rows[*admin.Worker]{list.GetWorkers(), text, list.GetNextPageToken()}}
	v.Programs, v.Lost = programs(list.GetWorkers()), list.GetLost()
	own, err := ask(ctx, s.source, "own storage", func(ctx context.Context) (*admin.ListStoresResponse, error) {
		return s.options.Scheduler.ListStores(ctx, &admin.ListStoresRequest{Own: true})
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

func (s *Site) drain(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(ctx context.Context, p *admin.Pattern) error {
		_, err := s.options.Scheduler.Drain(ctx, &admin.DrainRequest{Pattern: p})
		return err
	})
}

func (s *Site) undrain(w http.ResponseWriter, r *http.Request) {
	s.change(w, r, func(ctx context.Context, p *admin.Pattern) error {
		_, err := s.options.Scheduler.Undrain(ctx, &admin.UndrainRequest{Pattern: p})
		return err
	})
}

// change does something with the pattern of a form and goes back to the workers.
func (s *Site) change(w http.ResponseWriter, r *http.Request, do func(context.Context, *admin.Pattern) error) {
	_, p, err := askedFor(r)
	if err == nil && p == nil {
		err = status.Error(codes.InvalidArgument, "give a pattern, such as host=build-*")
	}
	if err == nil {
		err = do(r.Context(), p)
	}
	if err != nil {
		s.fail(w, r, "workers", err)
		return
	}
	s.source.forget()
	http.Redirect(w, r, "/workers", http.StatusSeeOther)
}
