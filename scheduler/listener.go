package scheduler

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/peer"

	"github.com/forerunner-build/forerunner/scheduler/core"
)

// A connection is where calls come from. It stands for the remote address, by
// which gRPC tells its handlers who calls.
type connection struct {
	net.Addr
	id   uint64
	host string
	// ended: it is closed, by whichever side. gRPC closes it before it ends its calls.
	ended atomic.Bool
}

// connectionOf returns what a call came over; nil if its listener is not watched.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		c, _ := p.Addr.(*connection)
		return c
	}
	return nil
}

// clientOf names the client of a call, for Operation.Client: its host.
func clientOf(ctx context.Context) string {
	if c := connectionOf(ctx); c != nil {
		return c.host
	}
	return ""
}

// A listener tells of the connections that it accepts, and that end.
type listener struct {
	net.Listener
	engine *engine
	// last counts the connections that were ever made, of all listeners of a Server, to name them.
	last *atomic.Uint64
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Addr: conn.RemoteAddr(), id: l.last.Add(1)}
	if c.host, _, err = net.SplitHostPort(c.String()); err != nil {
		c.host = c.String()
	}
	return &watched{Conn: conn, connection: c, closed: sync.OnceFunc(func() {
		l.engine.feed(core.Disconnect{Connection: c.id})
	})}, nil
}

// A watched connection tells when it is closed, by whichever side.
type watched struct {
	net.Conn
	connection *connection
	closed     func()
}

// RemoteAddr implements net.Conn.
func (w *watched) RemoteAddr() net.Addr { return w.connection }

// Close implements net.Conn.
func (w *watched) Close() error {
	w.connection.ended.Store(true)
	err := w.Conn.Close()
	w.closed()
	return err
}
