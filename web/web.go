package web

import (
	"context"
	"net/http"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/web/answers"
	"github.com/forerunner-build/forerunner/web/plots"
	"github.com/forerunner-build/forerunner/web/stored"
)

// Options are the data sources and settings of a Site.
type Options struct {
	// Scheduler and Operations provide all data of the scheduler. Both are required.
	Scheduler  admin.SchedulerServer
	Operations longrunningpb.OperationsServer
	// Output has the output of running commands; nil: pages do not show it.
	Output bytestream.ByteStreamServer
	// Blobs returns the storage of an instance name.
	Blobs func(instance string, fn digest.Function) Blobs
	// Profiles has the profiles of actions; nil: pages do not show them.
	Profiles record.Hints
	// Figures stores charts, so that they survive restarts, as hints under keys that contain Farm;
	// nil: charts start empty.
	Figures record.Hints
	Farm    string
	// Login handles log-ins; nil: log-in is off.
	Login *login.Logins
	// Address is the scheduler's address for clients, such as grpc://host:8980; empty: the overview
	// shows no instructions. Pages is the URL of these pages, ending in a slash; empty:
	// instructions use the viewer's address.
	Address, Pages string
	// Slots is the number of slots of a farm whose only worker is in this process; 0: unknown.
	Slots int
	// Memory is the memory limit of the program in bytes, of which large pages may use a part; 0:
	// no limit.
	Memory int64
	// ReadOnly disables changes.
	ReadOnly bool
	Logger   *zap.Logger
}

// Blobs reads from a storage.
type Blobs = stored.Blobs

// A Site is a set of pages. It knows their paths and audiences. Other types make the pages.
type Site struct {
	display *display
	queues  *queuePages
	sampler *plots.Sampler // takes samples during Run
	login   *loginPages
	mux     *http.ServeMux
	// audiences has the audience of each pattern of mux.
	audiences map[string]Audience
}

// New returns a Site. It makes no requests yet.
func New(o Options) (*Site, error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	rendered := &renderer{login: o.Login, budget: newBudget(o.Memory), readOnly: o.ReadOnly, logger: o.Logger}
	if err := rendered.parse(); err != nil {
		return nil, err
	}
	from, kept := answers.New(o.Scheduler), plots.New(o.Figures, o.Farm, o.Logger)
	s := &Site{
		display: &display{renderer: rendered, viewers: intake.NewPermits(maxViewers)},
		queues:  &queuePages{Source: from, plots: kept, address: o.Address, pages: o.Pages, slots: o.Slots},
		sampler: plots.NewSampler(from, kept),
		login:   &loginPages{rendered},
		mux:     http.NewServeMux(), audiences: map[string]Audience{},
	}
	for _, r := range s.routes(o) {
		s.mux.Handle(r.pattern, r.handler)
		s.audiences[r.pattern] = r.audience
	}
	return s, nil
}

// Handler answers every request, with an error if there is no such page. It does not authenticate:
// see Audience.
func (s *Site) Handler() http.Handler {
	// Browsers report whether a form comes from one of these pages.
	return withHeaders(http.NewCrossOriginProtection().Handler(s.mux))
}

// Refused implements auth.Refused: it redirects to the log-in, or shows the reason on a page.
func (s *Site) Refused(w http.ResponseWriter, r *http.Request, why *status.Status) {
	setHeaders(w.Header())
	s.login.refused(w, r, why)
}

// Run takes samples until ctx ends, saves them, and returns nil.
func (s *Site) Run(ctx context.Context) error { return s.sampler.Run(ctx) }

func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w.Header())
		next.ServeHTTP(w, r)
	})
}

// setHeaders restricts what browsers allow the answer to do.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
}
