package farm

import (
	"net"
	"net/http"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/web"
)

// pages returns what shows the scheduler to people. On a port that other machines reach, and that
// asks nobody who he is, they may look and change nothing.
func (s *Scheduler) pages(sched *scheduler.Server, storage *storage, records kv.Store, guarded bool) (*web.Site, error) {
	host, _, err := net.SplitHostPort(s.HTTP)
	return web.New(web.Options{
		Scheduler:  sched.Admin(),
		Operations: sched.Operations(),
		Output:     sched.ByteStream(&bytestream.UnimplementedByteStreamServer{}),
		Blobs: func(instance string, fn digest.Function) web.Blobs {
			return storage.of(instance, fn)
		},
		Profiles: records,
		ReadOnly: !guarded && (err != nil || !isLoopback(host)),
		Logger:   s.Logger,
	})
}

// PageFlags registers the flags of pages.
func (s *Scheduler) PageFlags(f *pflag.FlagSet) {
	f.StringVar(&s.PageURL, "page-url", "", "`URL` at which people find the pages, for links in the messages of failed actions (default http://HTTP, where that is on loopback)")
}

// Pages is where people find the pages, with a slash at its end; empty: that is not known, or there are none.
func (s *Scheduler) Pages() string {
	if s.PageURL != "" {
		return strings.TrimSuffix(s.PageURL, "/") + "/"
	}
	host, port, err := net.SplitHostPort(s.HTTP)
	if err != nil || port == "0" || !isLoopback(host) {
		return ""
	}
	return strings.Replace(s.Scheme(), "grpc", "http", 1) + s.HTTP + "/"
}

// site returns pages as they are for those who may look, and forms for those who may administer.
func (p protection) site(pages http.Handler) http.Handler {
	look, change := p.pages(auth.Observe, pages), p.pages(auth.Administer, pages)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			look.ServeHTTP(w, r)
			return
		}
		change.ServeHTTP(w, r)
	})
}

// localOnly refuses what a browser was made to ask by a page from elsewhere, whose name was
// let point to this machine meanwhile. It is for ports on loopback.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "this port is for this machine: ask it by its IP address or as localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}
