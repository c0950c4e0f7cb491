package web

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
	// Everybody is who has any right: style sheets are for him.
	Everybody
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
		{"GET /static/", Everybody, http.FileServerFS(files)},
		{"GET /{$}", Operators, s.page("overview", s.overview)},
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
		{"GET /", Operators, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s.fail(w, "", status.Error(codes.NotFound, "no such page"))
		})},
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

// Audience returns whom the page is for that a request asks for.
func (s *Site) Audience(r *http.Request) Audience {
	_, pattern := s.mux.Handler(r)
	return s.audiences[pattern] // of no pattern: Administrators
}
