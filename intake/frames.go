package intake

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
)

const (
	// mostBegun is how many calls a client may begin, and mostControl how many other frames without
	// data it may send, while it does not read answers. gRPC's answers to these fit into less than
	// one write.
	mostBegun, mostControl = 16, 256
	// settingsBytes bound a frame of settings: there are ten.
	settingsBytes = 64 * 6
	// refusalTime is how long gRPC may take to begin to send a refusal. Some calls it refuses
	// without one.
	refusalTime = 100 * time.Millisecond
	// framesBuffer holds a record of TLS.
	framesBuffer = 16 << 10
	headBytes    = 9
)

// framing makes gRPC read connections frame by frame.
type framing struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (f framing) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := f.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	var through *Conn
	if a, ok := info.(Arrival); ok {
		through = a.Through()
	}
	return newFrames(conn, through), info, nil
}

// Clone implements credentials.TransportCredentials.
func (f framing) Clone() credentials.TransportCredentials {
	return framing{f.TransportCredentials.Clone()}
}

// frames is a connection of HTTP/2 whose client must read. gRPC queues an answer for most frames,
// some of them with a text from the client that is as long as headers may be, and reads on until
// 10,000 wait on one connection; for calls with wrong numbers there is no limit. Here the next
// frame is not read while too many answers may wait, or a single refusal that no handler has
// decided on. gRPC then closes a connection that reads nothing at all.
//
// It relies on gRPC reading no further than the end of a frame before it has handled that.
type frames struct {
	net.Conn
	in      *bufio.Reader
	through *Conn // nil: it is not limited

	// The following belongs to the goroutine that reads.
	preface int             // remaining bytes of it
	head    [headBytes]byte // of the frame that comes, of which there are have bytes
	have    int
	left    int    // remaining bytes of its payload
	padded  bool   // the first of these is the length of padding
	code    uint32 // the last bytes of the payload, if it resets a stream
	called  bool   // the headers of a call have come last, and gRPC has not dealt with them
	opened  uint64 // calls that it had let in before that
	sent    uint64 // writes before that

	mu             sync.Mutex
	writes         uint64 // that have begun; guarded by mu, as all below
	writing        bool
	begun, control int           // since then
	wrote          chan struct{} // has one when a write has ended
}

func newFrames(conn net.Conn, through *Conn) *frames {
	return &frames{
		Conn: conn, in: bufio.NewReaderSize(conn, framesBuffer), through: through, preface: len(http2.ClientPreface),
		wrote: make(chan struct{}, 1),
	}
}

var (
	errSettings = errors.New("a frame has more settings than there are")
	errPadding  = errors.New("a frame has more padding than data")
)

// Read implements net.Conn.
func (f *frames) Read(p []byte) (int, error) {
	part := f.left
	switch {
	case f.preface > 0:
		part = f.preface
	case f.left == 0:
		if f.have == 0 || f.have == headBytes {
			f.have = 0
			if err := f.await(); err != nil {
				return 0, err
			}
		}
		part = headBytes - f.have
	}
	n, err := f.in.Read(p[:min(len(p), part)])
	if n == 0 {
		return n, err
	}
	if broken := f.pass(p[:n]); broken != nil {
		if f.through != nil {
			f.through.gate.refused("frames")
		}
		return 0, broken
	}
	return n, err
}

// pass records the bytes that were read: of the preface, of the head of a frame, or of its payload.
func (f *frames) pass(p []byte) error {
	switch {
	case f.preface > 0:
		f.preface -= len(p)
		return nil
	case f.have < headBytes:
		if f.have += copy(f.head[f.have:], p); f.have < headBytes {
			return nil
		}
		f.left = int(binary.BigEndian.Uint32(f.head[:]) >> 8)
		if err := f.begin(); err != nil {
			return err
		}
	default:
		if f.padded && 2*int(p[0]) >= f.left {
			return errPadding
		}
		f.padded = false
		f.left -= len(p)
		f.readCode(p)
	}
	if f.left == 0 {
		f.end()
	}
	return nil
}

func (f *frames) kind() http2.FrameType     { return http2.FrameType(f.head[3]) }
func (f *frames) has(flag http2.Flags) bool { return http2.Flags(f.head[4]).Has(flag) }

// begin refuses frames by their heads.
func (f *frames) begin() error {
	switch f.kind() {
	case http2.FrameSettings:
		if f.left > settingsBytes {
			return errSettings
		}
	case http2.FrameData:
		f.padded = f.left > 0 && f.has(http2.FlagDataPadded)
	}
	return nil
}

// end counts a frame that gRPC is going to deal with.
func (f *frames) end() {
	f.noteStream()
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.kind() {
	case http2.FrameData:
	case http2.FrameHeaders, http2.FrameContinuation:
		if f.has(http2.FlagHeadersEndHeaders) { // as that of a continuation
			f.begun++
			f.called, f.sent = true, f.writes
			if f.through != nil {
				f.opened = f.through.opened
			}
		}
	default:
		f.control++
	}
}

// await returns when the next frame may be read.
func (f *frames) await() error {
	if f.through == nil {
		return nil
	}
	if f.called {
		f.called = false
		if f.opened == f.through.opened {
			if err := f.awaitRefusal(); err != nil {
				return err
			}
		}
	}
	f.mu.Lock()
	full := f.begun >= mostBegun || f.control >= mostControl
	f.mu.Unlock()
	for full {
		f.mu.Lock()
		if !f.writing {
			f.begun, f.control, full = 0, 0, false
		}
		f.mu.Unlock()
		if !full {
			runtime.Gosched() // lets a writer run
			return nil
		}
		select {
		case <-f.wrote:
		case <-f.through.done.Done():
			return net.ErrClosed
		}
	}
	return nil
}

// awaitRefusal returns once gRPC has sent its pending answers.
func (f *frames) awaitRefusal() error {
	limited, cancel := context.WithTimeout(f.through.done, refusalTime)
	defer cancel()
	late := limited.Done()
	for {
		f.mu.Lock()
		writing, begun := f.writing, f.writes > f.sent
		f.mu.Unlock()
		if !writing && (begun || late == nil) {
			return nil
		}
		select {
		case <-f.wrote:
		case <-late:
			late = nil
		case <-f.through.done.Done():
			return net.ErrClosed
		}
	}
}

// Write implements net.Conn.
func (f *frames) Write(p []byte) (int, error) {
	f.mu.Lock()
	f.writes++
	f.writing = true
	f.mu.Unlock()
	n, err := f.Conn.Write(p)
	f.mu.Lock()
	f.writing = false
	f.begun, f.control = 0, 0
	f.mu.Unlock()
	select {
	case f.wrote <- struct{}{}:
	default:
	}
	return n, err
}
