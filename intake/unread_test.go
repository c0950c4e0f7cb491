package intake

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// pipes is a listener whose connections have no buffers: a write waits for its reader.
type pipes struct {
	accepted chan net.Conn
	close    func()
}

func newPipes() *pipes {
	accepted := make(chan net.Conn)
	return &pipes{accepted, sync.OnceFunc(func() { close(accepted) })}
}

func (p *pipes) Accept() (net.Conn, error) {
	c, ok := <-p.accepted
	if !ok {
		return nil, io.EOF
	}
	return c, nil
}

func (p *pipes) Close() error {
	p.close()
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.accepted <- theirs
	return ours
}

// rude speaks HTTP/2 as it likes.
type rude struct {
	*http2.Framer
	conn   net.Conn
	out    bytes.Buffer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	stream uint32
}

func newRude(conn net.Conn) *rude {
	r := &rude{conn: conn}
	r.Framer = http2.NewFramer(&r.out, conn)
	r.AllowIllegalWrites = true
	r.hpack = hpack.NewEncoder(&r.block)
	return r
}

// dialRude connects to a server.
func dialRude(t *testing.T, addr string) *rude {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	return newRude(conn)
}

// flush sends the frames that were written.
func (r *rude) flush() error {
	_, err := r.conn.Write(r.out.Bytes())
	r.out.Reset()
	return err
}

// callOf are the headers of a call; the last two are its type.
func callOf(method string) []string {
	return []string{":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc"}
}

// health makes a call that is answered at once.
func (r *rude) health() error {
	return errors.Join(r.headers(callOf(check)...), r.WriteData(r.stream-1, true, make([]byte, 5)))
}

// headers sends the headers of a new call.
func (r *rude) headers(fields ...string) error {
	r.block.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := r.hpack.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	r.stream += 2
	block, first := r.block.Bytes(), true
	for {
		n := min(len(block), 16<<10)
		var err error
		if first {
			err = r.WriteHeaders(http2.HeadersFrameParam{StreamID: r.stream - 1, BlockFragment: block[:n], EndHeaders: n == len(block)})
		} else {
			err = r.WriteContinuation(r.stream-1, n == len(block), block[:n])
		}
		if block, first = block[n:], false; len(block) == 0 || err != nil {
			return err
		}
	}
}

// serveRude runs a server in a synctest bubble. Its clients decide when they read.
func serveRude(t *testing.T, o Options) (dial func() *rude, s *Server) {
	t.Helper()
	o.Credentials = throughGate{insecure.NewCredentials()}
	if o.Identify == nil {
		o.Identify = identifyAll
	}
	s = NewServer(o)
	healthpb.RegisterHealthServer(s, &service{})
	s.RegisterService(&upload, nil)
	s.RegisterService(&large, nil)
	listener := newPipes()
	served := make(chan error, 1)
	go func() { served <- s.Serve(NewGate(o.Bounds, s.Refused()).Listen(listener)) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return func() *rude {
		r := newRude(listener.dial())
		t.Cleanup(func() { _ = r.conn.Close() })
		said := make(chan error, 1)
		go func() {
			_, err := io.WriteString(r.conn, http2.ClientPreface)
			said <- errors.Join(err, r.WriteSettings(), r.flush())
		}()
		for {
			f, err := r.ReadFrame()
			must(t, err)
			if f, ok := f.(*http2.SettingsFrame); ok && f.IsAck() {
				must(t, <-said)
				return r
			}
		}
	}, s
}

// TestUnread has clients that read nothing, and send what gRPC has to answer, or queues something
// for: it reads a few of these frames, and none that no client would send.
func TestUnread(t *testing.T) {
	long := strings.Repeat("\"", 4000)
	for name, c := range map[string]struct {
		most int
		send func(r *rude, i uint32) error
	}{
		"calls": {mostBegun + 1, func(r *rude, _ uint32) error { return r.health() }},
		"calls that are reset": {mostBegun + 1, func(r *rude, _ uint32) error {
			return errors.Join(r.headers(callOf(check)...), r.WriteRSTStream(r.stream-1, http2.ErrCodeCancel))
		}},
		"unknown methods": {2, func(r *rude, _ uint32) error { return r.headers(callOf("/x/Y")...) }},
		"a long type":     {2, func(r *rude, _ uint32) error { return r.headers(append(callOf(check)[:8], "content-type", long)...) }},
		"a wrong text":    {2, func(r *rude, _ uint32) error { return r.headers(append(callOf(check), "x-bin", long)...) }},
		"too long headers": {2, func(r *rude, _ uint32) error {
			return r.headers(append(callOf(check), "x", strings.Repeat(long, 40))...)
		}},
		"pings":              {mostControl + 1, func(r *rude, _ uint32) error { return r.WritePing(false, [8]byte{}) }},
		"windows":            {mostControl + 1, func(r *rude, i uint32) error { return r.WriteWindowUpdate(2*i+1, 1) }},
		"resets":             {mostControl + 1, func(r *rude, i uint32) error { return r.WriteRSTStream(2*i+1, http2.ErrCodeCancel) }},
		"settings":           {mostControl + 1, func(r *rude, _ uint32) error { return r.WriteSettings(http2.Setting{ID: 77}) }},
		"too many settings":  {1, func(r *rude, _ uint32) error { return r.WriteSettings(make([]http2.Setting, settingsBytes/6+1)...) }},
		"a number of others": {2, func(r *rude, _ uint32) error { r.stream = 1; return r.headers(callOf(check)...) }},
		"more padding than data": {1, func(r *rude, _ uint32) error {
			return errors.Join(r.headers(callOf(check)...), r.WriteDataPadded(r.stream-1, false, []byte{0}, make([]byte, 255)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dial, _ := serveRude(t, Options{Bounds: BoundsFor(200_000_000)})
				r := dial()
				must(t, r.WritePing(false, [8]byte{}))
				must(t, r.flush())
				synctest.Wait() // its answer is being written, for ever
				var taken atomic.Int64
				go func() {
					for i := range uint32(1000) {
						if c.send(r, i) != nil || r.flush() != nil {
							return
						}
						taken.Add(1)
					}
				}()
				time.Sleep(time.Second)
				synctest.Wait()
				if n := int(taken.Load()); n > c.most {
					t.Errorf("%d were read", n)
				}
			})
		})
	}
}

// TestRead has a client that reads, late: all that it has sent is answered.
func TestRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, _ := serveRude(t, Options{Bounds: BoundsFor(200_000_000)})
		r := dial()
		const calls = 300
		go func() {
			for i := range calls {
				err := r.health()
				if i%2 == 0 { // one that is refused
					err = errors.Join(err, r.headers(callOf("/x/Y")...), r.WritePing(false, [8]byte{}))
				}
				if err != nil || r.flush() != nil {
					return
				}
			}
		}()
		for answered, pinged := 0, 0; answered < calls*3/2 || pinged == 0; {
			synctest.Wait()
			f, err := r.ReadFrame()
			must(t, err)
			switch f := f.(type) {
			case *http2.HeadersFrame:
				if f.StreamEnded() {
					answered++
				}
			case *http2.PingFrame:
				pinged++
			}
		}
	})
}

// TestDraining shuts a server down gracefully: it accepts no new calls, and existing ones continue.
func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, s := serveRude(t, Options{Bounds: BoundsFor(200_000_000)})
		r := dial()
		must(t, r.headers(callOf(check)...))
		must(t, r.flush())
		synctest.Wait()
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.GracefulStop()
		}()
		go func() { _, _ = io.Copy(io.Discard, r.conn) }()
		time.Sleep(10 * time.Second) // gRPC waits no longer for its last ping
		for range 3 {
			must(t, r.headers(callOf(check)...))
		}
		must(t, r.WriteData(1, true, make([]byte, 5)))
		go func() { _ = r.flush() }()
		time.Sleep(5 * time.Second)
		select {
		case <-stopped:
		default:
			t.Error("a call that began before does not end")
		}
	})
}
