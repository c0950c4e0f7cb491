package testbed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/bench/benchtest"
)

// arrivals records when written bytes arrive.
type arrivals struct {
	began time.Time
	at    []time.Duration
	text  []byte
}

func (a *arrivals) Write(p []byte) (int, error) {
	a.at = append(a.at, time.Since(a.began))
	a.text = append(a.text, p...)
	return len(p), nil
}

// TestProxyDelays checks that every byte is late by the delay, and that bytes behind it are not
// later than that.
func TestProxyDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := io.Pipe()
		l := newDirection(Distance{RoundTrip: 50 * time.Millisecond})
		out := &arrivals{began: time.Now()}
		done := make(chan error, 1)
		go func() { done <- l.carry(t.Context(), out, from) }()
		for i := range 10 {
			_, err := to.Write([]byte{byte('0' + i)})
			benchtest.Check(t, err)
			time.Sleep(time.Millisecond)
		}
		benchtest.Check(t, to.Close())
		benchtest.Check(t, <-done)
		if string(out.text) != "0123456789" {
			t.Errorf("arrived: %q", out.text)
		}
		for i, at := range out.at {
			if want := 25*time.Millisecond + time.Duration(i)*time.Millisecond; at != want {
				t.Errorf("byte %d arrived after %s, want %s", i, at, want)
			}
		}
	})
}

// TestProxyBandwidth checks that bytes that are sent at once arrive at the speed of the bandwidth.
func TestProxyBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newDirection(Distance{RoundTrip: 2 * time.Second, Bandwidth: packetBytes})
		out := &arrivals{began: time.Now()}
		benchtest.Check(t, l.carry(t.Context(), out, io.NopCloser(bytes.NewReader(make([]byte, 3*packetBytes)))))
		want := []time.Duration{2 * time.Second, 3 * time.Second, 4 * time.Second}
		if len(out.at) != len(want) {
			t.Fatalf("arrived at %v, want %v", out.at, want)
		}
		for i, at := range out.at {
			if at != want[i] {
				t.Errorf("arrived at %v, want %v", out.at, want)
			}
		}
		if n := l.bytes.Load(); n != 3*packetBytes {
			t.Errorf("counted %d bytes", n)
		}
	})
}

// failing accepts nothing.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// endless never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
func (endless) Close() error               { return nil }

// TestDirectionEnds checks that a failing receiver, or the end of ctx, ends the direction at once,
// even while many bytes are in flight and the sender continues.
func TestDirectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		if err := newDirection(Distance{}).carry(t.Context(), failing{broken}, endless{}); !errors.Is(err, broken) {
			t.Errorf("error %v, want the receiver's error", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := newDirection(Distance{RoundTrip: time.Hour}).carry(ctx, io.Discard, endless{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("error %v after %s", err, time.Since(began))
		}
	})
}

// startEcho sends back on each connection what it received, when the sender has closed its side.
func startEcho(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	benchtest.Check(t, err)
	done := make(chan struct{})
	t.Cleanup(func() { benchtest.Check(t, listener.Close()); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			text, err := io.ReadAll(conn)
			if err == nil {
				_, _ = conn.Write(text)
			}
			_ = conn.Close()
		}
	}()
	return listener.Addr().String()
}

// TestProxyKeepsBytes checks that several MiB go there and back unchanged, and that the end of one
// direction leaves the other open.
func TestProxyKeepsBytes(t *testing.T) {
	p, err := StartProxy(t.Context(), startEcho(t), Distance{RoundTrip: 2 * time.Millisecond})
	benchtest.Check(t, err)
	defer p.Close()
	conn, err := net.Dial("tcp", p.Address())
	benchtest.Check(t, err)
	defer conn.Close()
	sent := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
	_, err = conn.Write(sent)
	benchtest.Check(t, err)
	benchtest.Check(t, conn.(*net.TCPConn).CloseWrite())
	got, err := io.ReadAll(conn)
	benchtest.Check(t, err)
	if !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, changed; sent %d", len(got), len(sent))
	}
	if n := p.Received(); n != int64(len(sent)) {
		t.Errorf("counted %d bytes, sent %d", n, len(sent))
	}
}

// TestProxyCloses checks that Close ends idle connections, and that connections to a target that
// does not exist end by themselves.
func TestProxyCloses(t *testing.T) {
	p, err := StartProxy(t.Context(), startEcho(t), Distance{RoundTrip: time.Hour})
	benchtest.Check(t, err)
	conn, err := net.Dial("tcp", p.Address())
	benchtest.Check(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte("on the way for half an hour"))
	benchtest.Check(t, err)
	p.Close()
	if text, err := io.ReadAll(conn); len(text) > 0 {
		t.Errorf("read %q, %v from a closed proxy", text, err)
	}

	gone, err := StartProxy(t.Context(), "127.0.0.1:1", Distance{})
	benchtest.Check(t, err)
	defer gone.Close()
	lost, err := net.Dial("tcp", gone.Address())
	benchtest.Check(t, err)
	defer lost.Close()
	if text, err := io.ReadAll(lost); len(text) > 0 {
		t.Errorf("read %q, %v from nowhere", text, err)
	}
}
