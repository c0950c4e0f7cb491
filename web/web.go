package web

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/stored"
)

// Options say what a Site shows.
type Options struct {
	// Scheduler and Operations are asked for everything that moves. Both are needed.
	Scheduler  admin.SchedulerServer
	Operations longrunningpb.OperationsServer
	// Output has what commands print while they run; nil: that is not shown.
	Output bytestream.ByteStreamServer
	// Blobs returns the storage of an instance name, where actions are read.
	Blobs func(instance string, fn digest.Function) Blobs
	// Profiles has what actions read; nil: that is not known here.
	Profiles record.Hints
	// Login has people log in; nil: nobody does.
	Login *login.Logins
	// ReadOnly leaves out what changes something.
	ReadOnly bool
	Logger   *zap.Logger
}

// Blobs is storage.
type Blobs = stored.Blobs

const (
	// pageRows is how many rows of a long list are on a page.
	pageRows = 100
	// loadTimeout bounds what a page waits for what it shows.
	loadTimeout = 20 * time.Second
)

//go:embed templates static
var files embed.FS

// A Site is a set of pages.
type Site struct {
	options Options
	pages   map[string]*template.Template
	source  *source
	history *history
	viewers *intake.Places // of live pages
	trees   *intake.Turns  // of input roots that are read
	mux     *http.ServeMux
	// audiences are those of the patterns of mux.
	audiences map[string]Audience
}

// New returns a Site. It asks for nothing yet.
func New(o Options) (*Site, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &Site{
		options: o, pages: map[string]*template.Template{}, source: newSource(o), history: &history{},
		viewers: intake.NewPlaces(maxViewers), trees: intake.NewTurns(trees),
		mux: http.NewServeMux(), audiences: map[string]Audience{},
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	layout, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html")
	if err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	for _, name := range names {
		t, err := layout.Clone()
		if err == nil {
			t, err = t.ParseFS(files, name)
		}
		if err != nil {
			return nil, fmt.Errorf("pages: %w", err)
		}
		s.pages[name[len("templates/"):len(name)-len(".html")]] = t
	}
	for _, r := range s.routes() {
		s.mux.Handle(r.pattern, r.handler)
		s.audiences[r.pattern] = r.audience
	}
	return s, nil
}

// Handler answers every request, those for pages that there are not with an error. It asks nobody who he is: see
// Audience.
func (s *Site) Handler() http.Handler {
	// Browsers say whether a form comes from one of these pages.
	return withHeaders(http.NewCrossOriginProtection().Handler(s.mux))
}

func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		next.ServeHTTP(w, r)
	})
}

// setHeaders says what browsers may do with an answer.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
}

// A loader gets what a page shows. Its errors are gRPC statuses.
type loader func(ctx context.Context, r *http.Request) (any, error)

// A view is what templates see.
type view struct {
	Page     string // that of the navigation which is open
	ReadOnly bool
	Viewer   viewer
	Data     any
}

// A templated is the data of a page that is another one than usual.
type templated interface{ template() string }

// page answers with a page, or with the stream of what it becomes.
func (s *Site) page(name string, load loader) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == eventStream {
			s.follow(w, r, name, load)
			return
		}
		data, err := s.load(r, load)
		if err != nil {
			s.fail(w, r, name, err)
			return
		}
		shown := name
		if t, ok := data.(templated); ok {
			shown = t.template()
		}
		s.render(w, http.StatusOK, shown, s.view(r, shown, data))
	})
}

func (s *Site) load(r *http.Request, load loader) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), loadTimeout)
	defer cancel()
	return load(ctx, r)
}

// render writes a whole page.
func (s *Site) render(w http.ResponseWriter, code int, name string, v view) {
	var b bytes.Buffer
	if err := s.pages[name].ExecuteTemplate(&b, "layout.html", v); err != nil {
		s.options.Logger.Error("page cannot be rendered", zap.String("page", name), zap.Error(err))
		http.Error(w, "this page cannot be shown: the scheduler's log says why", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes()) // who has left does not read it
}

// main returns the part of a page that moves.
func (s *Site) main(r *http.Request, name string, data any) ([]byte, error) {
	var b bytes.Buffer
	err := s.pages[name].ExecuteTemplate(&b, "main", s.view(r, name, data))
	return b.Bytes(), err
}

// A failure is what the page of an error shows.
type failure struct {
	Title, Text string
	Again       string // where one can try again; empty: nowhere
}

// fail says what went wrong, by a gRPC status.
func (s *Site) fail(w http.ResponseWriter, r *http.Request, name string, err error) {
	st := status.Convert(err)
	code, title := http.StatusInternalServerError, "This did not work"
	switch st.Code() {
	case codes.NotFound:
		code, title = http.StatusNotFound, "Not here"
	case codes.InvalidArgument:
		code, title = http.StatusBadRequest, "That is not understood"
	case codes.FailedPrecondition:
		code, title = http.StatusConflict, "Not possible"
	case codes.Unauthenticated:
		code, title = http.StatusUnauthorized, "Who are you?"
	case codes.PermissionDenied:
		code, title = http.StatusForbidden, "Not for you"
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted:
		code, title = http.StatusServiceUnavailable, "Not now"
	}
	s.render(w, code, "error", s.view(r, name, failure{Title: title, Text: st.Message()}))
}
