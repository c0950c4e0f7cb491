package intake

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// A Gate limits the connections of listeners. It may be used concurrently.
type Gate struct {
	bounds  Bounds
	refused func(reason string)

	mu    sync.Mutex
	count int            // of connections; guarded by mu, as all below
	hosts map[string]int // of connections
	// guests are those without an allowed call so far, idle those that had one and have none now.
	guests, idle map[uint64]*Conn
	next         uint64
}

// NewGate returns a Gate.
func NewGate(b Bounds, refused func(reason string)) *Gate {
	return &Gate{
		bounds: b, refused: refused,
		hosts: map[string]int{}, guests: map[uint64]*Conn{}, idle: map[uint64]*Conn{},
	}
}

// Listen returns l with a limit on its connections.
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

// A Conn is a connection that came through a Gate. It begins as a guest.
type Conn struct {
	net.Conn
	gate  *Gate
	host  string
	name  string // see Caller
	close func() error
	// done ends with the connection.
	done context.Context
	// writes counts writes that wait for the other end, unread the refusals meanwhile, as calls.
	writes, unread atomic.Int64
	// opened counts the calls that gRPC was let have. The goroutine that reads the connection
	// touches it.
	opened  uint64
	cancels cancels

	id    uint64      // guarded by the gate's mu, as all below; more is younger
	calls int         // that it is of use for now
	gone  bool        // it is closed
	timer *time.Timer // until it must have a call; nil: it need not
}

// enter returns conn as a counted one, nil if it exceeds the limit.
func (g *Gate) enter(conn net.Conn) *Conn {
	host := Host(conn.RemoteAddr())
	done, end := context.WithCancel(context.Background())
	c := &Conn{Conn: conn, gate: g, host: host, name: AddressCaller(host), done: done}
	c.close = sync.OnceValue(func() error {
		end()
		g.leave(c)
		return conn.Close()
	})
	oldest, reason, ok := g.admit(c)
	if oldest != nil {
		g.refused(reason)
		_ = oldest.Close()
	}
	if !ok {
		g.refused("connections")
		return nil
	}
	return c
}

// admit counts c, if there is room, and returns the connection that must be closed for it, and the
// reason.
func (g *Gate) admit(c *Conn) (oldest *Conn, reason string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	oldest, reason = g.crowdedLocked(c.host)
	if all, own := g.count >= g.bounds.Connections, g.hosts[c.host] >= g.bounds.ConnectionsOfOne; oldest == nil && (all || own) {
		from := c.host
		if !own {
			from = ""
		}
		if own {
			oldest, _ = oldestOf(g.guests, from)
		} else {
			oldest = g.mostLocked()
		}
		if oldest == nil {
			oldest, _ = oldestOf(g.idle, from)
		}
		if oldest == nil {
			return nil, "", false
		}
		reason = "idle"
	}
	if oldest != nil {
		g.forgetLocked(oldest)
	}
	g.count++
	g.hosts[c.host]++
	g.next++
	c.id = g.next
	g.guests[c.id] = c
	if g.bounds.Guest > 0 {
		c.timer = time.AfterFunc(g.bounds.Guest, func() {
			g.refused("no_identity")
			_ = c.Close()
		})
	}
	return oldest, reason, true
}

// crowdedLocked returns the guest that makes room for one of host, and why; nil: there is room.
func (g *Gate) crowdedLocked(host string) (*Conn, string) {
	own, n := oldestOf(g.guests, host)
	if n >= g.bounds.GuestsOfOne {
		return own, "no_identity"
	}
	if len(g.guests) >= g.bounds.Guests {
		return g.mostLocked(), "no_identity"
	}
	return nil, ""
}

// mostLocked returns the oldest guest of a host that has most.
func (g *Gate) mostLocked() (oldest *Conn) {
	count := map[string]int{}
	for _, c := range g.guests {
		count[c.host]++
	}
	for _, c := range g.guests {
		if oldest == nil || count[c.host] > count[oldest.host] || count[c.host] == count[oldest.host] && c.id < oldest.id {
			oldest = c
		}
	}
	return oldest
}

// oldestOf returns the oldest of some connections, and how many there are; only those of host, if
// that is not empty.
func oldestOf(some map[uint64]*Conn, host string) (oldest *Conn, n int) {
	for _, c := range some {
		if host != "" && c.host != host {
			continue
		}
		if n++; oldest == nil || c.id < oldest.id {
			oldest = c
		}
	}
	return oldest, n
}

func (g *Gate) leave(c *Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.forgetLocked(c)
}

// forgetLocked counts c no more.
func (g *Gate) forgetLocked(c *Conn) {
	if c.gone {
		return
	}
	c.gone = true
	g.count--
	if g.hosts[c.host]--; g.hosts[c.host] == 0 {
		delete(g.hosts, c.host)
	}
	c.leaveLocked()
}

// leaveLocked removes c without a replacement.
func (c *Conn) leaveLocked() {
	delete(c.gate.guests, c.id)
	delete(c.gate.idle, c.id)
	if c.timer != nil {
		c.timer.Stop()
	}
}

// Known records that the peer has authenticated: it is no guest any more. It may be called for nil,
// and again.
func (c *Conn) Known() {
	if c == nil {
		return
	}
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	if c.calls == 0 && !c.gone {
		c.leaveLocked()
		c.gate.idle[c.id] = c
	}
}

// Busy records that c has a call, until Idle has been called as often. It may be called for nil.
func (c *Conn) Busy() {
	if c == nil {
		return
	}
	c.gate.mu.Lock()
	defer c.gate.mu.Unlock()
	c.calls++
	c.leaveLocked()
}

// Idle ends one Busy.
func (c *Conn) Idle() {
	if c == nil {
		return
	}
	g := c.gate
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.calls--; c.calls == 0 && !c.gone {
		g.next++
		c.id = g.next
		g.idle[c.id] = c
	}
}

// Caller is AddressCaller of the other end.
func (c *Conn) Caller() string { return c.name }

// afterClose has f called when the connection has ended, unless stop is called before. It may be
// called for nil.
func (c *Conn) afterClose(f func()) (stop func()) {
	if c == nil {
		return func() {}
	}
	stopped := context.AfterFunc(c.done, f)
	return func() { stopped() }
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	defer func() {
		c.writes.Add(-1)
		c.unread.Store(0)
	}()
	return c.Conn.Write(p)
}

// open records an admitted call. It may be called for nil.
func (c *Conn) open() {
	if c != nil {
		c.opened++
	}
}

// mostUnread is how many refused calls, of usual size, may wait on a connection until their client
// reads.
const mostUnread = 16

// refuse records a refused call, which counts as n. gRPC keeps its headers until the refusal is
// sent, and they are charged to no caller: a client that does not read may not have many. It may be
// called for nil.
func (c *Conn) refuse(n int64) {
	if c != nil && c.writes.Load() > 0 && c.unread.Add(n) > mostUnread {
		c.gate.refused("unread")
		_ = c.Close()
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error { return c.close() }

// Host returns the part of an address that identifies a caller. For IPv6 that is the 64-bit
// network, because one machine may have all addresses in it.
func Host(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	ip, err := netip.ParseAddr(host)
	switch ip = ip.Unmap().WithZone(""); {
	case err != nil:
		return host
	case ip.Is4() || ip.IsLoopback():
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
