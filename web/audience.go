package web

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
)

// An Audience is whom a page is for. The zero Audience is Administrators.
type Audience int

// The Audiences there are.
const (
	// Administrators may administer: for them are the forms, and what is not known to be for others.
	Administrators Audience = iota
	// Operators may observe: for them are pages of the whole farm.
	Operators
	// Owners may execute for some instance name, or observe. They see operations that auth.Owns gives them, and of others
	// what they see of none.
	Owners
	// Readers may read for some instance name, or observe. They see what is below the instance names for which
	// they may, and of the rest what they see of nothing.
	Readers
	// Strangers are whoever reaches the port: for them are style sheets, and pages to log in.
	Strangers
)

// A route is the pages of one pattern of http.ServeMux.
type route struct {
	pattern  string
	audience Audience
	handler  http.Handler
}

// routes are all pages. One whose audience nobody has thought of is for administrators.
func (s *Site) routes() []route {
	list := []route{
		{"GET /static/", Strangers, http.FileServerFS(files)},
		{"GET /{$}", Owners, s.first()},
		{"GET /invocations", Operators, s.page("invocations", s.invocations)},
		{"GET /operations", Owners, s.page("operations", s.operations)},
		{"GET /operations/{id}", Owners, s.page("operation", s.operation)},
		{"GET /operations/{id}/{stream}", Owners, http.HandlerFunc(s.output)},
		{"GET /actions/{function}/{hash}/{size}", Readers, s.page("action", s.action)},
		{"GET /blobs/{function}/{hash}/{size}", Readers, http.HandlerFunc(s.blobFile)},
		{"GET /builds/{invocation}", Owners, http.HandlerFunc(s.build)},
		{"GET /history", Owners, s.page("history", s.records)},
		{"GET /workers", Operators, s.page("workers", s.workers)},
		{"GET /quotas", Operators, s.page("quotas", s.quotas)},
		{"GET /", Operators, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.fail(w, r, "", status.Error(codes.NotFound, "no such page"))
		})},
	}
	if s.options.Login != nil {
		list = append(list,
			route{"GET /login", Strangers, http.HandlerFunc(s.logIn)},
			route{"GET /" + login.Callback, Strangers, http.HandlerFunc(s.loggedIn)},
			route{"GET /logout", Strangers, http.HandlerFunc(s.loggedOut)},
			route{"POST /logout", Strangers, http.HandlerFunc(s.logOut)},
		)
	}
	if s.options.ReadOnly {
		return list
	}
	return append(list,
		route{"POST /operations/{id}/cancel", Administrators, http.HandlerFunc(s.cancel)},
		route{"POST /workers/drain", Administrators, http.HandlerFunc(s.drain)},
		route{"POST /workers/undrain", Administrators, http.HandlerFunc(s.undrain)},
	)
}

// first is the overview, and the history for those who may not see all of the farm.
func (s *Site) first() http.Handler {
	overview := s.page("overview", s.overview)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !auth.Allowed(r.Context(), auth.Observe, "") {
			http.Redirect(w, r, "/history", http.StatusSeeOther)
			return
		}
		overview.ServeHTTP(w, r)
	})
}

// Audience returns whom the page is for that a request asks for.
func (s *Site) Audience(r *http.Request) Audience {
	_, pattern := s.mux.Handler(r)
	return s.audiences[pattern] // of no pattern: Administrators
}
