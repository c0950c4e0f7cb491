package intake

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// pageBytes is the cost of a connection over HTTP during an answer.
	pageBytes = 256 << 10
	// requestHeaderBytes bound its headers: a token and cookies. Go keeps several times as many.
	requestHeaderBytes = 32 << 10
	// formBytes bound the body of a request, headerTime and formTime how long its parts may take to
	// come.
	formBytes  = 64 << 10
	headerTime = 10 * time.Second
	formTime   = 30 * time.Second
	// answerTime limits how long a client may take to read an answer; handlers that send without
	// end extend it for each part.
	answerTime = time.Minute
	// idleTime is how long a connection may wait for its next request.
	idleTime = time.Minute
)

// pages returns the bounds of a server of pages.
func (b Bounds) pages() Bounds {
	n := b.Pages
	return Bounds{Connections: n, ConnectionsOfOne: n / 2, Guests: n / 2, GuestsOfOne: n / 4}
}

// An HTTPServer serves HTTP within limits: of connections, of the size of requests, and of the time
// in which its client sends one and reads the answer.
type HTTPServer struct {
	*http.Server
	gate *Gate
}

// NewHTTPServer returns an HTTPServer for a program with those bounds. metrics, if not nil, counts
// the refused connections. handshake, if not nil, is called for each failed TLS handshake.
func NewHTTPServer(
	b Bounds, handler http.Handler, metrics prometheus.Registerer, handshake func(peer string, err error),
) *HTTPServer {
	count := counter(metrics, "forerunner_http_refused_total",
		"Connections over HTTP that were refused, or closed to make room, by reason.", "connections", "no_request", "idle")
	return &HTTPServer{
		&http.Server{
			Handler:           http.MaxBytesHandler(inTime(handler), formBytes),
			ReadHeaderTimeout: headerTime, WriteTimeout: answerTime, IdleTimeout: idleTime,
			MaxHeaderBytes: requestHeaderBytes, ErrorLog: log.New(faults{handshake}, "", log.LstdFlags),
			Protocols: onlyHTTP1(),
			ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
				c := through(conn)
				if t, ok := c.Conn.(*net.TCPConn); ok {
					_ = t.SetWriteBuffer(pageBytes / 2) // otherwise the kernel buffers megabytes for a client that does not read
				}
				return context.WithValue(ctx, connKey{}, c)
			},
		},
		NewGate(b.pages(), func(reason string) {
			if reason == "no_identity" { // what shows that a connection is of use here is a request
				reason = "no_request"
			}
			count(reason)
		}),
	}
}

// faults writes to the standard log what a server says of itself. It does not write failed
// handshakes, of which everyone that reaches the port can make thousands a second, a line each: the
// log has the disk of other things.
type faults struct{ handshake func(peer string, err error) }

// failedHandshake is what http.Server says of one.
var failedHandshake = regexp.MustCompile(`http: TLS handshake error from (\S+): (.*)`)

// Write implements io.Writer.
func (f faults) Write(line []byte) (int, error) {
	m := failedHandshake.FindSubmatch(line)
	if m == nil {
		return log.Writer().Write(line)
	}
	switch reason := string(m[2]); {
	case f.handshake == nil:
	case reason == io.EOF.Error():
		f.handshake(string(m[1]), io.EOF)
	default:
		f.handshake(string(m[1]), errors.New(reason))
	}
	return len(line), nil
}

// onlyHTTP1 limits a connection to one request at a time. Over HTTP/2 it could have many, each with
// headers and an answer that its client does not read.
func onlyHTTP1() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	return p
}

// Serve serves the connections of l, wrapped by encrypt, until Close.
func (s *HTTPServer) Serve(l net.Listener, encrypt func(net.Listener) net.Listener) error {
	return s.Server.Serve(encrypt(s.gate.Listen(l)))
}

// connKey is where the context of a request has the Conn that it came through.
type connKey struct{}

// through returns the Conn in a connection.
func through(conn net.Conn) *Conn {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, _ := conn.(*Conn)
	return c
}

// inTime sets deadlines for the body of a request, and marks its connection as busy during the
// answer.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _ := r.Context().Value(connKey{}).(*Conn)
		conn.Busy()
		defer conn.Idle()
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(formTime)) // else there is none
		}
		next.ServeHTTP(w, r)
	})
}
