package bazel

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy passes connections on to an address until it is cut.
type proxy struct {
	listener net.Listener
	to       string
	passing  sync.WaitGroup

	mu       sync.Mutex // guards all below
	isCut    bool
	conns    map[net.Conn]bool
	passed   int // connections
	rejected int // while it was cut
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, to: to, conns: map[net.Conn]bool{}}
	p.passing.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		p.passing.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.passing.Go(func() { p.pass(from) })
	}
}

// pass passes on what goes both ways until one end is closed.
func (p *proxy) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer to.Close()
	if !p.keep(from, to) {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(from, to)
		_ = from.Close()
	})
	_, _ = io.Copy(to, from)
	_ = to.Close()
	back.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, from)
	delete(p.conns, to)
}

// keep keeps a connection for cut to close, and reports whether it may be passed on.
func (p *proxy) keep(from, to net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		p.rejected++
		return false
	}
	p.passed++
	p.conns[from], p.conns[to] = true, true
	return true
}

// cut closes all connections, and each that comes until restore.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) restore() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

// counts returns how many connections were passed on, and how many rejected.
func (p *proxy) counts() (passed, rejected int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed, p.rejected
}
