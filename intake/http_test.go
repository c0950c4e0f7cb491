package intake

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// servePages serves over HTTP until the test ends, and returns the address.
func servePages(t *testing.T, b Bounds, handler http.HandlerFunc, metrics prometheus.Registerer) string {
	t.Helper()
	return serveEncrypted(t, NewHTTPServer(b, handler, metrics, nil), func(l net.Listener) net.Listener { return l })
}

func serveEncrypted(t *testing.T, s *HTTPServer, encrypt func(net.Listener) net.Listener) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener, encrypt) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// connect connects and sends text.
func connect(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// logged is the text of a log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// String implements fmt.Stringer.
func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestLogOfPages has a client that does not speak TLS, one that leaves, and then a request that finds
// a fault of the program: only that is a line of the server's own, and failed handshakes are told.
func TestLogOfPages(t *testing.T) {
	said := &logged{}
	log.SetOutput(said)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	model := httptest.NewTLSServer(http.NotFoundHandler())
	model.Close()
	failed := make(chan string, 9)
	address := serveEncrypted(t, NewHTTPServer(BoundsFor(32<<20), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a fault") }), nil,
		func(peer string, err error) { failed <- peer + " " + err.Error() }),
		func(l net.Listener) net.Listener { return tls.NewListener(l, model.TLS) })
	stranger := connect(t, address, strings.Repeat("\x00", 100))
	if _, err := io.Copy(io.Discard, stranger); err != nil {
		t.Log(err) // it may be reset
	}
	left := leaves(t, address)
	if _, err := io.Copy(io.Discard, left); err != nil {
		t.Fatal(err)
	}
	friend, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer friend.Close()
	if _, err := friend.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, friend); err != nil {
		t.Fatal(err)
	}
	if text := said.String(); !strings.Contains(text, "a fault") || strings.Contains(text, "handshake") {
		t.Errorf("the log has %q", text)
	}
	for _, want := range []string{
		stranger.LocalAddr().String() + " tls: first record does not look like a TLS handshake", left.LocalAddr().String() + " EOF",
	} {
		if got := <-failed; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
}

// leaves returns a connection that has been closed for writing.
func leaves(t *testing.T, address string) net.Conn {
	t.Helper()
	conn := connect(t, address, "")
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestPagesUnderFlood has many more connections than there may be, which send nothing, a part of a
// request, or a request and then nothing: one that comes afterwards is answered.
func TestPagesUnderFlood(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":          "",
		"half a request":   "GET / HTTP/1.1\r\nHost: x\r\n",
		"idle after a one": "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			address := servePages(t, BoundsFor(32<<20), func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "a page")
			}, registry)
			for range 200 {
				conn := connect(t, address, text)
				if strings.HasSuffix(text, "\r\n\r\n") { // else it is not clear which end first
					if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
						t.Fatal(err)
					}
				}
			}
			resp, err := http.Get("http://" + address)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "a page" {
				t.Errorf("%q, %v", text, err)
			}
			if n := refusals(t, registry); n < 100 {
				t.Errorf("%v connections were refused", n)
			}
		})
	}
}

// TestBusyPagesStay has the maximum number of concurrent requests. None of them may end for new
// ones.
func TestBusyPagesStay(t *testing.T) {
	release, begun := make(chan struct{}), make(chan struct{}, 200)
	b := BoundsFor(32 << 20)
	address := servePages(t, b, func(w http.ResponseWriter, _ *http.Request) {
		begun <- struct{}{}
		<-release
		_, _ = io.WriteString(w, "a page")
	}, nil)
	var under []net.Conn
	for range b.pages().ConnectionsOfOne {
		under = append(under, connect(t, address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		<-begun
	}
	late := connect(t, address, "")
	_ = late.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := late.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("one too many: %v", err)
	}
	close(release)
	for _, conn := range under {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(err)
		}
	}
}

// TestForms has bodies and headers that are too long.
func TestForms(t *testing.T) {
	address := servePages(t, BoundsFor(32<<20), func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		}
	}, nil)
	for n, want := range map[int]int{100: http.StatusOK, formBytes + 1: http.StatusRequestEntityTooLarge} {
		resp, err := http.Post("http://"+address, "application/x-www-form-urlencoded", strings.NewReader("a="+strings.Repeat("x", n)))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a form of %d bytes: %s", n, resp.Status)
		}
	}
	conn := connect(t, address, fmt.Sprintf("GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("y", headerBytes+8<<10)))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("long headers: %v, %v", resp, err)
	}
}

// refusals returns how much a registry has counted of all that it counts.
func refusals(t *testing.T, of *prometheus.Registry) (sum float64) {
	t.Helper()
	families, err := of.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

// TestLongHeadersOfPages: Go keeps several times as many bytes of headers as come.
func TestLongHeadersOfPages(t *testing.T) {
	address := servePages(t, BoundsFor(1<<30), func(http.ResponseWriter, *http.Request) {}, nil)
	conn := connect(t, address, "GET / HTTP/1.1\r\nHost: x\r\nx: "+strings.Repeat("x", requestHeaderBytes+8<<10)+"\r\n\r\n")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, "431") {
		t.Errorf("%q, %v", line, err)
	}
}
