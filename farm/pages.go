package farm

import (
	"net"
	"net/http"
	"strings"

	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/web"
)

// pages returns what shows the scheduler to people. On a port that other machines reach, and that
// asks nobody who he is, they may look and change nothing.
func (s *Scheduler) pages(sched *scheduler.Server, storage *storage, hints records.Hints, guarded bool) (*web.Site, error) {
	host, _, err := net.SplitHostPort(s.HTTP)
	return web.New(web.Options{
		Scheduler:  sched.Admin(),
		Operations: sched.Operations(),
		Output:     sched.ByteStream(&bytestream.UnimplementedByteStreamServer{}),
		Blobs: func(instance string, fn digest.Function) web.Blobs {
			return storage.of(instance, fn)
		},
		Profiles: hints,
		ReadOnly: !guarded && (err != nil || !dial.IsLoopback(host)),
		Logger:   s.Logger,
	})
}

// Pages is where people find the pages, with a slash at its end; empty: that is not known, or there are none.
func (s *Scheduler) Pages() string {
	if s.PageURL != "" {
		return strings.TrimSuffix(s.PageURL, "/") + "/"
	}
	host, port, err := net.SplitHostPort(s.HTTP)
	if err != nil || port == "0" || !dial.IsLoopback(host) {
		return ""
	}
	return strings.Replace(s.Scheme(), "grpc", "http", 1) + s.HTTP + "/"
}

// site returns pages, each for those whom it is for.
func site(guard *auth.Guard, site *web.Site) http.Handler {
	pages := site.Handler()
	if guard == nil {
		return pages
	}
	admitted := map[web.Audience]http.Handler{
		web.Administrators: guard.HTTP(auth.Administer, pages),
		web.Operators:      guard.HTTP(auth.Observe, pages),
		web.Owners:         guard.OwnHTTP(auth.Execute, pages),
		web.Readers:        guard.OwnHTTP(auth.Read, pages),
		web.Everybody:      guard.KnownHTTP(pages),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted[site.Audience(r)].ServeHTTP(w, r)
	})
}
