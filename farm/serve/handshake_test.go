package serve

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/auth/certtest"
	"github.com/forerunner-build/forerunner/intake"
)

// An elsewhere is a listener whose connections are from an address that no process has, if there is
// one.
type elsewhere struct {
	net.Listener
	address net.Addr
}

type elsewhereConn struct {
	net.Conn
	address net.Addr
}

// Accept implements net.Listener.
func (l elsewhere) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil || l.address == nil {
		return conn, err
	}
	return elsewhereConn{conn, l.address}, nil
}

// RemoteAddr implements net.Conn.
func (c elsewhereConn) RemoteAddr() net.Addr { return c.address }

// connected returns both ends of a connection to l.
func connected(t *testing.T, l net.Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return client, server
}

// listening returns a listener on loopback.
func listening(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestHandshakeWithOthers: if a port is for one user, calls on another user's connection are
// refused, whether or not it came through a gate.
func TestHandshakeWithOthers(t *testing.T) {
	others := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	gate := intake.NewGate(intake.Bounds{Connections: 9, ConnectionsOfOne: 9, Guests: 9, GuestsOfOne: 9}, func(string) {})
	for name, test := range map[string]struct {
		own     bool
		address net.Addr // nil: its own
		gated   bool
		want    codes.Code
	}{
		"another user":                  {true, others, true, codes.PermissionDenied},
		"another user, without a gate":  {true, others, false, codes.PermissionDenied},
		"the own user":                  {true, nil, true, codes.OK},
		"the own user, without a gate":  {true, nil, false, codes.OK},
		"anybody, where nobody is kept": {false, others, true, codes.OK},
	} {
		l := net.Listener(elsewhere{listening(t), test.address})
		if test.gated {
			l = gate.Listen(l)
		}
		_, server := connected(t, l)
		_, info, err := Protection{OwnUser: test.own}.credentials().ServerHandshake(server)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		refused := error(nil)
		if a, ok := info.(arrived); ok {
			refused = a.refused
		}
		if status.Code(refused) != test.want {
			t.Errorf("%s: %v, want %s", name, refused, test.want)
		}
	}
}

// TestKnownByCertificate: a connection with a certificate is no guest, and makes no room for one.
func TestKnownByCertificate(t *testing.T) {
	authority := certtest.New(t)
	cert, key := authority.Server("server")
	ports := Ports{Cert: cert, Key: key, ClientCA: authority.File}
	protect, err := ports.Protect(auth.Options{})
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(authority.File)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	shown, err := tls.LoadX509KeyPair(authority.Client("alice"))
	if err != nil {
		t.Fatal(err)
	}
	for name, certificates := range map[string][]tls.Certificate{"with": {shown}, "without": nil} {
		left := make(chan string, 1)
		gate := intake.NewGate(intake.Bounds{Connections: 9, ConnectionsOfOne: 9, Guests: 1, GuestsOfOne: 1, Guest: time.Hour},
			func(reason string) { left <- reason })
		l := gate.Listen(listening(t))
		client, server := connected(t, l)
		config := &tls.Config{RootCAs: roots, ServerName: "localhost", Certificates: certificates, NextProtos: []string{"h2"}}
		shaken := make(chan error, 1)
		go func() { shaken <- tls.Client(client, config).Handshake() }()
		if _, _, err := protect.credentials().ServerHandshake(server); err != nil {
			t.Fatal(err)
		}
		if err := <-shaken; err != nil {
			t.Fatal(err)
		}
		connected(t, l)
		closed := len(left) > 0
		if closed == (certificates != nil) {
			t.Errorf("%s a certificate: the connection makes room: %t", name, closed)
		}
	}
}

// A slowCollector says when it is asked, and answers when it may.
type slowCollector struct{ asked, may chan struct{} }

// Describe implements prometheus.Collector.
func (slowCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c slowCollector) Collect(chan<- prometheus.Metric) {
	c.asked <- struct{}{}
	<-c.may
}

// TestScrapesAtATime: metrics are gathered for a limited number of requests at once.
func TestScrapesAtATime(t *testing.T) {
	slow := slowCollector{make(chan struct{}), make(chan struct{})}
	registry := prometheus.NewRegistry()
	registry.MustRegister(slow)
	h := Handler("127.0.0.1:80", Protection{}, Shown{Registry: registry, Ready: &Readiness{}})
	codes := make(chan int)
	scrape := func() {
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Host = "127.0.0.1"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		codes <- w.Code
	}
	for range maxScrapes {
		go scrape()
		<-slow.asked
	}
	go scrape()
	rest := maxScrapes
	select {
	case code := <-codes:
		if code != http.StatusServiceUnavailable {
			t.Errorf("one scrape too many gets %d", code)
		}
	case <-slow.asked:
		t.Error("metrics are gathered for one too many")
		rest++
	}
	close(slow.may)
	for range rest {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("a scrape gets %d", code)
		}
	}
}
