package web

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/web/printed"
)

// An Audience is the set of viewers of a page. The zero Audience is Administrators.
type Audience int

// All audiences.
const (
	// Administrators have the right to administer. Forms and pages without an entry in routes are
	// for them.
	Administrators Audience = iota
	// Operators have the right to observe. Pages of the whole farm are for them.
	Operators
	// Owners may execute for some instance name, or observe. They see the operations that auth.Owns
	// gives them. To them, other operations do not exist.
	Owners
	// Readers may read for some instance name, or observe. They see the content of their instance
	// names. To them, other content does not exist.
	Readers
	// Strangers are all viewers, logged in or not. Style sheets and log-in pages are for them.
	Strangers
)

// A route is a pattern of http.ServeMux with its handler and audience.
type route struct {
	pattern  string
	audience Audience
	handler  http.Handler
}

// routes returns all routes. A page without an audience is for administrators.
func (s *Site) routes(o Options) []route {
	from, turns := s.queues.Source, intake.NewTurns(trees)
	comparer := &comparer{o.Scheduler, o.Blobs, o.Profiles, turns}
	prints := printed.NewReader(o.Blobs)
	records := &recordPages{from, o.Blobs, prints, comparer}
	operations := &operationPages{s.display.renderer, from, o.Operations, records, prints, o.Output != nil}
	output := &outputPages{s.display, o.Output}
	actions := &actionPages{o.Scheduler, o.Blobs, o.Profiles, turns, records, comparer, s.display.budget.inputs()}
	downloads := &downloads{s.display.renderer, o.Blobs}
	folders := &folderPages{o.Blobs, turns, min(maxTree, s.display.budget.file)}
	builds := &buildPages{s.display, from}
	workers := &workerPages{s.display.renderer, from, s.queues.plots}
	quotas := &quotaPages{from}
	page := s.display.page
	list := []route{
		{"GET /static/", Strangers, http.FileServerFS(files)},
		{"GET /{$}", Owners, s.first()},
		{"GET /invocations", Operators, page("invocations", s.queues.invocations)},
		{"GET /operations", Owners, page("operations", operations.list)},
		{"GET /operations/{id}", Owners, page("operation", operations.one)},
		{"GET /operations/{id}/{stream}", Owners, http.HandlerFunc(output.serve)},
		{"GET /actions/{function}/{hash}/{size}", Readers, page("action", actions.one)},
		{"GET /blobs/{function}/{hash}/{size}", Readers, http.HandlerFunc(downloads.serve)},
		{"GET /folders/{function}/{hash}/{size}", Readers, page("folder", folders.one)},
		{"GET /builds/{invocation}", Owners, http.HandlerFunc(builds.serve)},
		{"GET /history", Owners, page("history", records.list)},
		{"GET /workers", Operators, page("workers", workers.list)},
		{"GET /quotas", Operators, page("quotas", quotas.list)},
		{"GET /", Operators, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.display.fail(w, r, "", status.Error(codes.NotFound, "no such page"))
		})},
	}
	if o.Login != nil {
		list = append(list,
			route{"GET /login", Strangers, http.HandlerFunc(s.login.logIn)},
			route{"GET /" + login.Callback, Strangers, http.HandlerFunc(s.login.loggedIn)},
			route{"GET /logout", Strangers, http.HandlerFunc(s.login.loggedOut)},
			route{"POST /logout", Strangers, http.HandlerFunc(s.login.logOut)},
		)
	}
	if o.ReadOnly {
		return list
	}
	return append(list,
		route{"POST /operations/{id}/cancel", Administrators, http.HandlerFunc(operations.cancel)},
		route{"POST /workers/drain", Administrators, http.HandlerFunc(workers.drain)},
		route{"POST /workers/undrain", Administrators, http.HandlerFunc(workers.undrain)},
	)
}

// first serves the overview, or the history if the viewer may not see the whole farm.
func (s *Site) first() http.Handler {
	overview := s.display.page("overview", s.queues.overview)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !auth.Allowed(r.Context(), auth.Observe, "") {
			http.Redirect(w, r, "/history", http.StatusSeeOther)
			return
		}
		overview.ServeHTTP(w, r)
	})
}

// Audience returns the audience of the requested page.
func (s *Site) Audience(r *http.Request) Audience {
	_, pattern := s.mux.Handler(r)
	return s.audiences[pattern] // no pattern: Administrators
}
