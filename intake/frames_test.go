package intake

import (
	"bytes"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestFramesOfAByte has requests come in frames of a byte, all but their ends: they take what they are charged for. Then they end,
// and are answered.
func TestFramesOfAByte(t *testing.T) {
	const requests, size = 10, smallMessage
	b := BoundsFor(1 << 30)
	b.Wait = time.Minute
	s := NewServer(Options{Bounds: b, Identify: identifyAll, Credentials: throughGate{insecure.NewCredentials()}})
	healthpb.RegisterHealthServer(s, &service{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(NewGate(b, s.Refused()).Listen(listener)) }()
	defer func() {
		s.Stop()
		<-served
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	must(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(http2.ClientPreface))
	must(t, err)
	var out bytes.Buffer
	framer := http2.NewFramer(&out, conn)
	flush := func() {
		_, err := conn.Write(out.Bytes())
		must(t, err)
		out.Reset()
	}
	must(t, framer.WriteSettings())
	var head bytes.Buffer
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", check},
		{":authority", "x"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		must(t, hpack.NewEncoder(&head).WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true}))
	}
	each := func(do func(stream uint32) error) {
		for i := range uint32(requests) {
			must(t, do(2*i+1))
		}
		flush()
	}
	arrived := func() uint64 { // all that was sent, and nothing else is there any more
		must(t, framer.WritePing(false, [8]byte{}))
		flush()
		for {
			f, err := framer.ReadFrame()
			must(t, err)
			if p, ok := f.(*http2.PingFrame); ok && p.IsAck() {
				break
			}
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	each(func(stream uint32) error {
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: head.Bytes(), EndHeaders: true}); err != nil {
			return err
		}
		return framer.WriteData(stream, false, []byte{0, 0, 0, size >> 8, size & 255})
	})
	before := arrived()
	request := append([]byte{0x7a, 0xfd, 0x7f}, make([]byte, size-3)...) // a text of a field that there is not
	for _, c := range request[:size-1] {
		each(func(stream uint32) error { return framer.WriteData(stream, false, []byte{c}) })
	}
	if took := int64(arrived()) - int64(before); took > 4*requests*size {
		t.Errorf("%d bytes take %d", requests*size, took)
	}
	each(func(stream uint32) error { return framer.WriteData(stream, true, request[size-1:]) })
	for ended := 0; ended < requests; {
		f, err := framer.ReadFrame()
		must(t, err)
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			ended++
		} else if _, ok := f.(*http2.RSTStreamFrame); ok {
			t.Fatal("a request is refused")
		}
	}
	eventually(t, s.ledger.free)
}

// TestPool: a buffer is at most twice as large as what it is for.
func TestPool(t *testing.T) {
	for n := 1 << 10; n <= 2*largestPooled; n = n*5/4 + 1 {
		data := pool.Get(n)
		if len(*data) != n || cap(*data) >= 2*n {
			t.Errorf("%d bytes have a buffer of %d with %d", n, len(*data), cap(*data))
		}
		pool.Put(data)
	}
}
