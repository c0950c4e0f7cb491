//go:build cluster

package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	lineDelay = time.Millisecond       // of each piece on a line, each way
	lossDelay = 200 * time.Millisecond // of a piece that a network has lost and sends again
	lossRate  = 1000                   // one of lossRate pieces is lost
	lineBytes = 64 << 10
)

// A line forwards connections to a port of a host. It is slow if the network is not, can hold back
// what goes one way, and can break.
type line struct {
	h        *host
	listener net.Listener
	to       []string // the first that answers
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	calls  []*call
	holds  []*hold
}

// A call is one connection over a line.
type call struct {
	caller string // address of the host that calls
	ends   [2]net.Conn
}

func (c *call) cut() {
	for _, end := range c.ends {
		_ = end.Close()
	}
}

type direction int

const (
	up   direction = iota // from the caller
	down                  // to the caller
)

// A hold stops one direction of the traffic between a line and some hosts.
type hold struct {
	way      direction
	callers  []string
	released chan struct{}
}

// newLine starts a line, which ends with the test.
func newLine(h *host, listen string, to ...string) *line {
	h.Helper()
	l := &line{h: h, to: to}
	if err := h.inside(func() (err error) {
		l.listener, err = net.Listen("tcp", listen)
		return err
	}); err != nil {
		h.Fatal(err)
	}
	l.wg.Go(l.accept)
	h.Cleanup(func() {
		_ = l.listener.Close()
		l.mu.Lock()
		l.closed = true
		for _, hold := range l.holds {
			close(hold.released)
		}
		l.mu.Unlock()
		l.cut()
		l.wg.Wait()
	})
	return l
}

func (l *line) accept() {
	for {
		conn, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.forward(conn) })
	}
}

func (l *line) forward(conn net.Conn) {
	defer conn.Close()
	server, err := l.h.dial(context.Background(), l.to...)
	if err != nil {
		return
	}
	defer server.Close()
	caller, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
	c := &call{caller, [2]net.Conn{conn, server}}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.calls = append(l.calls, c)
	l.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.copy(c, up) })
	both.Go(func() { l.copy(c, down) })
	both.Wait()
	l.mu.Lock()
	l.calls = slices.DeleteFunc(l.calls, func(other *call) bool { return other == c })
	l.mu.Unlock()
}

// copy carries what goes one way, and ends the call when that ends.
func (l *line) copy(c *call, way direction) {
	defer c.cut()
	from, to := c.ends[way], c.ends[1-way]
	piece := make([]byte, lineBytes)
	for {
		n, err := from.Read(piece)
		if n > 0 && l.pass(c.caller, way) == nil {
			_, err = to.Write(piece[:n])
		} else if err == nil {
			return
		}
		if err != nil {
			return
		}
	}
}

var errHeld = errors.New("was held")

// pass takes as long as a piece does. Held pieces are lost.
func (l *line) pass(caller string, way direction) error {
	if !l.h.slowed {
		delay := lineDelay
		if rand.N(lossRate) == 0 {
			delay = lossDelay
		}
		time.Sleep(delay)
	}
	l.mu.Lock()
	var held chan struct{}
	for _, h := range l.holds {
		if h.way == way && slices.Contains(h.callers, caller) {
			held = h.released
		}
	}
	l.mu.Unlock()
	if held == nil {
		return nil
	}
	<-held
	return errHeld
}

// hold holds back what goes one way between the line and hosts until release, which breaks their
// connections.
func (l *line) hold(way direction, hosts ...*host) (release func()) {
	h := &hold{way: way, released: make(chan struct{})}
	for _, host := range hosts {
		h.callers = append(h.callers, host.address)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holds = append(l.holds, h)
	return func() {
		l.mu.Lock()
		if !slices.Contains(l.holds, h) || l.closed {
			l.mu.Unlock()
			return
		}
		l.holds = slices.DeleteFunc(l.holds, func(other *hold) bool { return other == h })
		close(h.released)
		l.mu.Unlock()
		l.cut(hosts...)
	}
}

// cut breaks the connections of some hosts; of none: all.
func (l *line) cut(hosts ...*host) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls {
		if len(hosts) == 0 || slices.ContainsFunc(hosts, func(h *host) bool { return h.address == c.caller }) {
			c.cut()
		}
	}
}
