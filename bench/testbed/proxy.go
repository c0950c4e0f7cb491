package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	packetBytes = 64 << 10
	// maxPackets limits the packets in flight in one direction of a connection. Above it the sender
	// waits, as with a full TCP window. It is far more than a gigabit link with a round trip of a
	// second holds.
	maxPackets = 4096
)

// A Distance is the network between two machines.
type Distance struct {
	RoundTrip time.Duration // half of it in each direction
	Bandwidth int64         // bytes per second in each direction, for all connections together; 0: no limit
}

// A Proxy forwards TCP connections to an address with the delay of a distant machine. It keeps the
// order of bytes, and like a network it can have any number of them in flight. It does not delay
// the setup of connections, loses nothing, and starts at full speed.
type Proxy struct {
	listener *net.TCPListener
	target   string
	up, down *direction // to the target, and from the target
	stop     context.CancelFunc
	all      sync.WaitGroup
}

// StartProxy listens on a port of 127.0.0.1 until Close, or until ctx ends. Both break all
// connections.
func StartProxy(ctx context.Context, target string, d Distance) (*Proxy, error) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("delay proxy: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	p := &Proxy{listener: listener, target: target, up: newDirection(d), down: newDirection(d), stop: stop}
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	p.all.Go(func() {
		for {
			near, err := listener.AcceptTCP()
			if err != nil {
				return // closed
			}
			p.all.Go(func() { p.pass(ctx, near) })
		}
	})
	return p, nil
}

// Address returns the proxy's address, HOST:PORT.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Received returns the number of bytes that the target has sent so far.
func (p *Proxy) Received() int64 { return p.down.bytes.Load() }

// Close breaks all connections and waits until all goroutines have ended.
func (p *Proxy) Close() {
	p.stop()
	_ = p.listener.Close()
	p.all.Wait()
}

// pass serves one connection until both sides have ended it or one side has broken it.
func (p *Proxy) pass(ctx context.Context, near *net.TCPConn) {
	defer func() { _ = near.Close() }()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.target)
	if err != nil {
		return // the client sees its connection close
	}
	far := conn.(*net.TCPConn)
	defer func() { _ = far.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
	oneWay := func(l *direction, to, from *net.TCPConn) {
		if err := l.carry(ctx, to, from); err != nil || to.CloseWrite() != nil {
			cancel()
		}
	}
	var both sync.WaitGroup
	both.Go(func() { oneWay(p.up, far, near) })
	both.Go(func() { oneWay(p.down, near, far) })
	both.Wait()
}

// A direction is one of the two directions of all connections.
type direction struct {
	delay     time.Duration
	bandwidth int64
	bytes     atomic.Int64 // received so far

	mu   sync.Mutex
	free time.Time // when all received bytes have been sent; only with a limited bandwidth
}

func newDirection(d Distance) *direction {
	return &direction{delay: d.RoundTrip / 2, bandwidth: d.Bandwidth}
}

// A packet has bytes in flight.
type packet struct {
	bytes []byte
	due   time.Time
}

// send returns the arrival time of n bytes that are sent now.
func (l *direction) send(n int) time.Time {
	l.bytes.Add(int64(n))
	now := time.Now()
	if l.bandwidth <= 0 {
		return now.Add(l.delay)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.bandwidth) * float64(time.Second)))
	return l.free.Add(l.delay)
}

// carry copies from src to dst until src ends, which is not an error. It closes src when dst fails
// or ctx ends. The caller that ends ctx must also end a Write to dst.
func (l *direction) carry(ctx context.Context, dst io.Writer, src io.ReadCloser) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ours := context.AfterFunc(ctx, func() { _ = src.Close() })
	defer ours()
	queue := make(chan packet, maxPackets)
	delivered := make(chan struct{})
	go func() {
		defer close(delivered)
		if err := deliver(ctx, dst, queue); err != nil {
			cancel(err)
		}
	}()
	err := l.take(ctx, queue, src)
	close(queue)
	<-delivered
	if failed := context.Cause(ctx); failed != nil {
		return failed
	}
	return err
}

// take reads until src or ctx ends.
func (l *direction) take(ctx context.Context, queue chan<- packet, src io.Reader) error {
	buffer := make([]byte, packetBytes)
	for {
		n, err := src.Read(buffer)
		if n > 0 {
			select {
			case queue <- packet{bytes.Clone(buffer[:n]), l.send(n)}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// deliver writes each packet at its arrival time.
func deliver(ctx context.Context, dst io.Writer, queue <-chan packet) error {
	for p := range queue {
		if wait := time.Until(p.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return ctx.Err()
			}
		}
		if _, err := dst.Write(p.bytes); err != nil {
			return err
		}
	}
	return nil
}
