package farm

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/login"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/web"
)

// pages returns the scheduler's pages for people. On a port that other machines reach, and without
// authentication, they are read-only.
func (s *Scheduler) pages(sched *scheduler.Server, storage *storage.Opened, kept *state.Opened, c *checkedScheduler, address string) (*web.Site, error) {
	memory, err := s.Callers.Memory.Bytes()
	if err != nil {
		return nil, err
	}
	slots := 0
	if s.joined != nil {
		slots = s.joined.slots
	}
	host, _, err := net.SplitHostPort(s.HTTP)
	return web.New(web.Options{
		Scheduler:  sched.Admin(),
		Operations: sched.Operations(),
		Output:     sched.ByteStream(&bytestream.UnimplementedByteStreamServer{}),
		Blobs: func(instance string, fn digest.Function) web.Blobs {
			return storage.View(instance, fn)
		},
		Profiles: kept.Hints,
		Figures:  kept.Hints,
		Farm:     s.farmName(kept.Shared != nil),
		Login:    c.logins,
		Address:  address,
		Pages:    s.Pages(),
		Slots:    slots,
		Memory:   memory,
		ReadOnly: c.protect.Guard == nil && (err != nil || !dial.IsLoopback(host)),
		Logger:   s.Logger,
	})
}

// farmName distinguishes s from other schedulers that keep charts in the same store, except those
// with the same lease.
func (s *Scheduler) farmName(shared bool) string {
	switch {
	case s.Lease != "":
		return "lease " + s.Lease
	case !shared:
		return ""
	}
	host, _ := os.Hostname() // without it, data folders of the same path are one
	return host + " " + s.Data
}

// Pages returns the public URL of the pages, with a slash at its end; empty if it is unknown, or
// there are none.
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

// checkPageURL returns an error unless text is the address of pages.
func checkPageURL(text string) error {
	u, err := url.Parse(text)
	if err != nil {
		return err
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("%q is not of the form http://HOST or https://HOST", text)
	}
	return nil
}

// site returns pages, each for its audience.
func site(guard *auth.Guard, site *web.Site) http.Handler {
	pages := site.Handler()
	if guard == nil {
		return pages
	}
	guard = guard.Answering(site.Refused)
	admitted := map[web.Audience]http.Handler{
		web.Administrators: guard.HTTP(auth.Administer, pages),
		web.Operators:      guard.HTTP(auth.Observe, pages),
		web.Owners:         guard.OwnHTTP(auth.Execute, pages),
		web.Readers:        guard.OwnHTTP(auth.Read, pages),
		web.Strangers:      guard.OpenHTTP(pages),
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		admitted[site.Audience(r)].ServeHTTP(w, r)
	})
}

// loginKey has the key of sessions below the folder of data, if none is named.
const loginKey = "login.key"

// newLogin returns how people log in to the pages; nil: they do not.
func (s *Scheduler) newLogin(file *config.File) (*login.Logins, error) {
	switch {
	case !file.Login.On():
		return nil, nil
	case s.HTTP == "":
		return nil, settings.Wrong("login: there are no pages to log in to: set --http")
	}
	pages := s.Pages()
	u, err := url.Parse(pages)
	if err == nil && u.Host != "" && u.Scheme != "https" && !dial.IsLoopback(u.Hostname()) && !s.Ports.Insecure {
		return nil, settings.Wrong("login: anyone on the network path to %s could steal sessions: set --tls-cert and --tls-key, or "+
			"--page-url to the https:// address of a proxy", pages)
	}
	return login.New(login.Options{
		Settings: file.Login, Rules: file.Access, Pages: pages, KeyFile: filepath.Join(s.Data, loginKey), Logger: s.Logger,
	})
}
