package outage

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A balancer forwards connections to the first of some addresses that takes them, unless it is cut.
type balancer struct {
	address string
	to      []string

	mu    sync.Mutex
	isCut bool                  // guarded by mu, like all below
	conns map[net.Conn]struct{} // of clients
}

// startBalancer starts a balancer, for the time of the test.
func startBalancer(t *testing.T, to []string) *balancer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &balancer{address: listener.Addr().String(), to: to, conns: map[net.Conn]struct{}{}}
	var forwarding sync.WaitGroup
	forwarding.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			forwarding.Go(func() { b.forward(client) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		forwarding.Wait()
	})
	return b
}

// cut closes all connections, and each that comes until restore.
func (b *balancer) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isCut = true
	for c := range b.conns {
		_ = c.Close()
	}
}

// restore undoes cut.
func (b *balancer) restore() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.isCut = false
}

// keep keeps a connection for cut to close until leave is called, and reports whether it may be
// forwarded.
func (b *balancer) keep(client net.Conn) (leave func(), may bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.isCut {
		return nil, false
	}
	b.conns[client] = struct{}{}
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.conns, client)
	}, true
}

// forward copies both ways until either side ends.
func (b *balancer) forward(client net.Conn) {
	defer client.Close()
	leave, may := b.keep(client)
	if !may {
		return
	}
	defer leave()
	for _, address := range b.to {
		server, err := net.Dial("tcp", address)
		if err != nil {
			continue
		}
		defer server.Close()
		var back sync.WaitGroup
		back.Go(func() {
			_, _ = io.Copy(client, server)
			_ = client.Close()
		})
		_, _ = io.Copy(server, client)
		_ = server.Close()
		back.Wait()
		return
	}
}
