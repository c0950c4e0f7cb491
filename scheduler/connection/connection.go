package connection

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/peer"

	"github.com/forerunner-build/forerunner/intake"
)

// A Connection is the connection of a call. It replaces the remote address by which gRPC identifies
// callers to handlers.
type Connection struct {
	net.Addr
	id         uint64
	text, host string // of Addr; each call asks for them
	ended      atomic.Bool
}

// String implements net.Addr.
func (c *Connection) String() string { return c.text }

// ID distinguishes the connections of one Listeners.
func (c *Connection) ID() uint64 { return c.id }

// Ended reports whether either side has closed the connection. gRPC closes it before it ends its
// calls.
func (c *Connection) Ended() bool { return c.ended.Load() }

// Of returns the connection of a call; nil if its listener is not watched.
func Of(ctx context.Context) *Connection {
	if p, ok := peer.FromContext(ctx); ok {
		c, _ := p.Addr.(*Connection)
		return c
	}
	return nil
}

// Host names the client of a call, for request.Operation.Client; empty if its listener is not
// watched.
func Host(ctx context.Context) string {
	if c := Of(ctx); c != nil {
		return c.host
	}
	return ""
}

// Listeners number the connections of several listeners.
type Listeners struct {
	last   atomic.Uint64
	closed func(id uint64)
}

// NewListeners returns Listeners that call closed with the ID of each connection, once, when it has
// been closed.
func NewListeners(closed func(id uint64)) *Listeners { return &Listeners{closed: closed} }

// Open returns the Connection of calls from an address that come through no listener. Its owner
// calls closed when it ends them, before it does; it may be called again.
func (ls *Listeners) Open(remote net.Addr) (c *Connection, closed func()) {
	c = &Connection{Addr: remote, id: ls.last.Add(1), text: remote.String(), host: intake.Host(remote)}
	return c, sync.OnceFunc(func() {
		c.ended.Store(true)
		ls.closed(c.id)
	})
}

// Watch wraps l so that calls over its connections have a Connection.
func (ls *Listeners) Watch(l net.Listener) net.Listener { return &listener{l, ls} }

type listener struct {
	net.Listener
	all *Listeners
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c, closed := l.all.Open(conn.RemoteAddr())
	return &watched{Conn: conn, connection: c, closed: closed}, nil
}

// A watched connection reports when either side closes it.
type watched struct {
	net.Conn
	connection *Connection
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
