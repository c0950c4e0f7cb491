package serve

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/intake"
)

// TestPagesSpeakHTTP1: over HTTP/2 a connection could have many concurrent requests, each with
// headers and an unread answer.
func TestPagesSpeakHTTP1(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Server("server")
	protect, err := (&Ports{Cert: cert, Key: key}).Protect(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := intake.NewHTTPServer(intake.BoundsFor(1<<30), http.NotFoundHandler(), nil, nil)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l, protect.encrypt) }()
	defer func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("pages speak %q", got)
	}
}

// TestOpen: an incomplete TLS configuration is an error, and an empty one means no TLS.
func TestOpen(t *testing.T) {
	a := certtest.New(t)
	cert, key := a.Server("server")
	for name, c := range map[string]struct {
		ports   Ports
		tls, ok bool
	}{
		"nothing":                   {Ports{}, false, true},
		"all":                       {Ports{Cert: cert, Key: key, ClientCA: a.File}, true, true},
		"authorities alone":         {Ports{ClientCA: a.File}, false, false},
		"a key alone":               {Ports{Key: key}, false, false},
		"a certificate alone":       {Ports{Cert: cert}, false, false},
		"a key and the authorities": {Ports{Key: key, ClientCA: a.File}, false, false},
	} {
		protect, err := c.ports.Protect(auth.Options{Logger: zap.NewNop()})
		if (err == nil) != c.ok || (protect.source != nil) != c.tls {
			t.Errorf("%s: TLS: %t, %v", name, protect.source != nil, err)
		}
		if err == nil && (protect.Guard != nil) != (c.ports.ClientCA != "") {
			t.Errorf("%s: callers need an identity: %t", name, protect.Guard != nil)
		}
	}
	if l := (Protection{}).encrypt(nil); l != nil {
		t.Errorf("a listener without TLS becomes %T", l)
	}
}

// TestNoPages: a program without an address for pages serves none.
func TestNoPages(t *testing.T) {
	stop, err := (&Ports{}).ServeHTTP(t.Context(), "", Callers{}, Protection{}, Shown{})
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestAddresses: a program does not listen everywhere because an address is empty, and on a port
// that others reach only if it is told to.
func TestAddresses(t *testing.T) {
	for address, allowed := range map[string]bool{"": false, ":0": false, "0.0.0.0:0": false, "127.0.0.1": false, "127.0.0.1:0": true, "[::1]:0": true} {
		p := &Ports{}
		if err := p.Check("--listen", address); (err == nil) != allowed || err != nil && !strings.Contains(err.Error(), "--listen") {
			t.Errorf("%q: %v", address, err)
		}
		if allowed {
			continue
		}
		if l, err := p.Listen(t.Context(), "--listen", address); err == nil {
			t.Errorf("%q: listens on %s", address, l.Addr())
			_ = l.Close()
		}
	}
	if err := (&Ports{}).CheckHTTP(""); err != nil {
		t.Errorf("no pages: %v", err)
	}
}
