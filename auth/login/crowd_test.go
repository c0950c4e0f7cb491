package login

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/intake"
)

// serveFrom serves the desk within bounds, as a program does, and returns the address.
func (d *desk) serveFrom() string {
	d.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		d.Fatal(err)
	}
	s := intake.NewHTTPServer(intake.BoundsFor(1<<30), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/login" {
			_ = d.logins.Begin(w, r, "", "/")
			return
		}
		if _, err := d.logins.Finish(w, r); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}), nil, nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener, func(l net.Listener) net.Listener { return l }) }()
	d.Cleanup(func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			d.Error(err)
		}
	})
	return "http://" + listener.Addr().String() + "/"
}

// logInFrom logs in from an address of this machine, and returns what the pages answer at the end.
func (d *desk) logInFrom(ctx context.Context, from string) string {
	d.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		d.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	browser := http.Client{Jar: jar, Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, d.options.Pages+"login", nil)
	if err != nil {
		d.Fatal(err)
	}
	resp, err := browser.Do(asked)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// TestCrowdOfOneAddress has one address use all exchanges with a slow issuer. A user at another
// address must still be able to log in: one of the crowd loses its exchange.
func TestCrowdOfOneAddress(t *testing.T) {
	d := newDesk(t)
	d.options.Pages = d.serveFrom()
	d.open()
	d.logins.issuers[0].client.Transport = d.issuer
	d.logins.ask, d.logins.issuers[0].client.Timeout = time.Hour, time.Hour // so that none ends before all have begun
	d.issuer.Stall(true)
	ctx, leave := context.WithCancel(t.Context())
	answers := make(chan string, 2*exchanges)
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer leave()
	for range 2 * exchanges {
		crowd.Go(func() { answers <- d.logInFrom(ctx, "127.0.0.1") })
	}
	for range exchanges { // the others wait for the issuer
		if got := <-answers; !strings.Contains(got, "too many people") {
			t.Fatalf("one too many is told %q", got)
		}
	}
	d.issuer.Stall(false)
	if got := d.logInFrom(t.Context(), "127.0.0.2"); got != "" {
		t.Errorf("somebody else is told %q", got)
	}
	if got := <-answers; !strings.Contains(got, "too many people") {
		t.Errorf("who makes room is told %q", got)
	}
}
