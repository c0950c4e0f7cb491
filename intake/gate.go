package intake

import (
	"net"
	"sync"
	"time"
)

// A Gate bounds the connections to listeners. It may be used concurrently.
type Gate struct {
	bounds  Bounds
	guests  bool // connections have to show an identity
	refused func(reason string)

	mu    sync.Mutex
	count int            // of connections; guarded by mu, as all below
	hosts map[string]int // of connections
	// waiting are those without identity, the oldest first; nil where one has gone.
	waiting map[uint64]*Conn
	next    uint64
}

// NewGate returns a Gate. With identities, connections have to show one in time.
func NewGate(b Bounds, identities bool, refused func(reason string)) *Gate {
	return &Gate{bounds: b, guests: identities, refused: refused, hosts: map[string]int{}, waiting: map[uint64]*Conn{}}
}

// Listen returns l without the connections that are too many.
func (g *Gate) Listen(l net.Listener) net.Listener { return &gated{l, g} }

type gated struct {
	net.Listener
	gate *Gate
}

// Accept implements net.Listener.
func (l *gated) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.gate.enter(conn); c != nil {
			return c, nil
		}
		_ = conn.Close()
	}
}

// A Conn is a connection that came through a Gate.
type Conn struct {
	net.Conn
	gate  *Gate
	host  string
	id    uint64
	timer *time.Timer // until it has to have shown an identity; nil: it need not
	close func() error
}

// enter returns conn as one that is counted, nil if it is one too many.
func (g *Gate) enter(conn net.Conn) *Conn {
	host := Host(conn.RemoteAddr())
	c := &Conn{Conn: conn, gate: g, host: host}
	c.close = sync.OnceValue(func() error {
		g.leave(c)
		return conn.Close()
	})
	oldest, ok := g.admit(c)
	if oldest != nil {
		g.refused("no_identity")
		_ = oldest.Close()
	}
	if !ok {
		g.refused("connections")
		return nil
	}
	return c
}

// admit counts c, if there is room, and returns which has to go for it.
func (g *Gate) admit(c *Conn) (oldest *Conn, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count >= g.bounds.Connections || g.hosts[c.host] >= g.bounds.ConnectionsOfOne {
		return nil, false
	}
	if g.guests {
		oldest = g.crowdedLocked(c.host)
	}
	g.count++
	g.hosts[c.host]++
	g.next++
	c.id = g.next
	if g.guests {
		g.waiting[c.id] = c
		c.timer = time.AfterFunc(g.bounds.Guest, func() {
			g.refused("no_identity")
			_ = c.Close()
		})
	}
	return oldest, true
}

// crowdedLocked returns the connection without identity that makes room for one of host; nil: there is room.
func (g *Gate) crowdedLocked(host string) (oldest *Conn) {
	of := 0
	var all, own *Conn
	for _, c := range g.waiting {
		if all == nil || c.id < all.id {
			all = c
		}
		if c.host != host {
			continue
		}
		if of++; own == nil || c.id < own.id {
			own = c
		}
	}
	switch {
	case of >= g.bounds.GuestsOfOne:
		return own
	case len(g.waiting) >= g.bounds.Guests:
		return all
	}
	return nil
}

func (g *Gate) leave(c *Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count--
	if g.hosts[c.host]--; g.hosts[c.host] == 0 {
		delete(g.hosts, c.host)
	}
	g.knowLocked(c)
}

func (g *Gate) knowLocked(c *Conn) {
	delete(g.waiting, c.id)
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Known says that who connects has shown an identity. It may be called for nil, and again.
func (c *Conn) Known() {
	if c == nil || c.timer == nil {
		return
	}
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.gate.knowLocked(c)
}

// Close implements net.Conn.
func (c *Conn) Close() error { return c.close() }

// Host returns the part of an address by which a caller is told from others.
func Host(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
