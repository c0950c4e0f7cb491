package flood

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// A rudeClient speaks enough HTTP/2 to send what no library would: messages that do not end,
// headers that do not end, and more calls than it reads answers of. It respects flow control,
// because a server closes connections that do not.
type rudeClient struct {
	conn net.Conn

	mu      sync.Mutex
	changed *sync.Cond
	err     error // the connection has ended; guarded by mu, as all below
	window  int64 // of the connection
	initial int64 // of new streams
	streams map[uint32]int64
	next    uint32
}

// Types and flags of frames (RFC 9113, section 6).
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameWindow, frameContinuation = 0, 1, 3, 4, 6, 8, 9

	flagAck, flagEndStream, flagEndHeaders = 1, 1, 4
)

var errStreamEnded = errors.New("the server has ended the stream")

// dialRude connects from an address of this machine, with TLS if config is not nil.
func dialRude(address, from string, config *tls.Config) (*rudeClient, error) {
	c, err := dialRaw(address, from, config)
	if err != nil {
		return nil, err
	}
	c.window, c.initial, c.streams, c.next = 65535, 65535, map[uint32]int64{}, 1
	c.changed = sync.NewCond(&c.mu)
	if _, err := c.conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")); err != nil {
		return nil, errors.Join(err, c.conn.Close())
	}
	go c.read()
	return c, c.frame(frameSettings, 0, 0, nil)
}

// dialRaw connects, with TLS if config is not nil, and says nothing.
func dialRaw(address, from string, config *tls.Config) (*rudeClient, error) {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		encrypted := tls.Client(conn, config)
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		if err := encrypted.Handshake(); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		_ = conn.SetDeadline(time.Time{})
		conn = encrypted
	}
	return &rudeClient{conn: conn}, nil
}

// say sends text and reads answers until the server closes the connection.
func (c *rudeClient) say(text string) {
	if _, err := io.WriteString(c.conn, text); err == nil {
		_, _ = io.Copy(io.Discard, c.conn)
	}
}

// close ends the connection, and all calls that wait.
func (c *rudeClient) close() { _ = c.conn.Close() }

// frame sends one frame.
func (c *rudeClient) frame(kind, flags byte, stream uint32, payload []byte) error {
	head := make([]byte, 9, 9+len(payload))
	binary.BigEndian.PutUint32(head, uint32(len(payload))<<8|uint32(kind))
	head[4] = flags
	binary.BigEndian.PutUint32(head[5:], stream)
	_, err := c.conn.Write(append(head, payload...))
	return err
}

// read reads what the server sends until it ends.
func (c *rudeClient) read() {
	in := bufio.NewReader(c.conn)
	for {
		var head [9]byte
		_, err := io.ReadFull(in, head[:])
		payload := make([]byte, binary.BigEndian.Uint32(head[:])>>8)
		if err == nil {
			_, err = io.ReadFull(in, payload)
		}
		if err == nil {
			err = c.heard(head[3], head[4], binary.BigEndian.Uint32(head[5:]), payload)
		}
		if err != nil {
			c.mu.Lock()
			c.err = err
			c.changed.Broadcast()
			c.mu.Unlock()
			return
		}
	}
}

func (c *rudeClient) heard(kind, flags byte, stream uint32, payload []byte) error {
	switch {
	case kind == framePing && flags&flagAck == 0:
		return c.frame(framePing, flagAck, 0, payload)
	case kind == frameSettings && flags&flagAck == 0:
		if err := c.frame(frameSettings, flagAck, 0, nil); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed.Broadcast()
	switch {
	case kind == frameSettings:
		for ; len(payload) >= 6; payload = payload[6:] {
			if binary.BigEndian.Uint16(payload) == 4 {
				c.initial = int64(binary.BigEndian.Uint32(payload[2:]))
			}
		}
	case kind == frameWindow && stream == 0:
		c.window += int64(binary.BigEndian.Uint32(payload))
	case kind == frameWindow:
		if _, open := c.streams[stream]; open {
			c.streams[stream] += int64(binary.BigEndian.Uint32(payload))
		}
	case kind == frameReset, kind == frameHeaders && flags&flagEndStream != 0:
		delete(c.streams, stream)
	}
	return nil
}

// call begins a call of a gRPC method and returns its stream.
func (c *rudeClient) call(method string) (uint32, error) {
	c.mu.Lock()
	stream := c.next
	c.next += 2
	c.streams[stream] = c.initial
	err := c.frame(frameHeaders, flagEndHeaders, stream, headersOf(method)) // in the order of the numbers
	c.mu.Unlock()
	return stream, err
}

func headersOf(method string) (block []byte) {
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "https"},
		{":path", method},
		{":authority", "farm"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		block = appendHeader(block, h[0], h[1])
	}
	return block
}

// appendHeader adds a literal that is not indexed (RFC 7541, section 6.2.2).
func appendHeader(block []byte, name, value string) []byte {
	block = append(block, 0)
	for _, s := range []string{name, value} {
		n := len(s)
		if n < 127 {
			block = append(block, byte(n))
		} else {
			block = append(block, 127)
			for n -= 127; n >= 128; n >>= 7 {
				block = append(block, byte(n)|128)
			}
			block = append(block, byte(n))
		}
		block = append(block, s...)
	}
	return block
}

// send sends bytes of a call, as fast as the server lets it.
func (c *rudeClient) send(stream uint32, data []byte) error {
	for len(data) > 0 {
		n, err := c.awaitWindow(stream, len(data))
		if err != nil {
			return err
		}
		if err := c.frame(frameData, 0, stream, data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// awaitWindow waits until some of n bytes may be sent.
func (c *rudeClient) awaitWindow(stream uint32, n int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		own, open := c.streams[stream]
		switch got := min(int64(n), own, c.window, 16<<10); {
		case c.err != nil:
			return 0, c.err
		case !open:
			return 0, errStreamEnded
		case got > 0:
			c.window -= got
			c.streams[stream] -= got
			return int(got), nil
		}
		c.changed.Wait()
	}
}

// ended waits until the server has ended a stream, or the connection.
func (c *rudeClient) ended(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil {
		if _, open := c.streams[stream]; !open {
			return
		}
		c.changed.Wait()
	}
}

// message returns the beginning of a gRPC message of that many bytes.
func message(n int) []byte {
	head := make([]byte, 5)
	binary.BigEndian.PutUint32(head[1:], uint32(n))
	return head
}

// endlessHeaders sends headers of a call that go on and on.
func (c *rudeClient) endlessHeaders(method string, bytes int) error {
	if err := c.frame(frameHeaders, 0, 1, headersOf(method)); err != nil {
		return err
	}
	piece := appendHeader(nil, "x", strings.Repeat("y", 15<<10))
	for ; bytes > 0; bytes -= len(piece) {
		if err := c.frame(frameContinuation, 0, 1, piece); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when the server has ended the connection.
func (c *rudeClient) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil {
		c.changed.Wait()
	}
}

// drip makes n calls whose requests have size bytes, and sends some bytes of each, in a frame of
// its own each.
func (c *rudeClient) drip(method string, n, size, some int) {
	var streams []uint32
	for range n {
		stream, err := c.call(method)
		if err != nil || c.send(stream, message(size)) != nil {
			return
		}
		streams = append(streams, stream)
	}
	frames := make([]byte, 10*n)
	for i, stream := range streams {
		frame := frames[10*i:]
		frame[2], frame[3] = 1, frameData
		binary.BigEndian.PutUint32(frame[5:], stream)
	}
	for range some { // less than a window
		if _, err := c.conn.Write(frames); err != nil {
			return
		}
	}
	for _, stream := range streams {
		c.ended(stream)
	}
}
