package intake

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"golang.org/x/net/http2"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestFramesOfAByte has requests arrive in frames of one byte, except their ends. They must take no
// more than they are charged for. Then they end, and are answered.
func TestFramesOfAByte(t *testing.T) {
	const requests, size = 10, smallMessage
	b := BoundsFor(1 << 30)
	b.Wait = time.Minute
	addr, s := serveThroughGate(t, b, func(s *Server) { healthpb.RegisterHealthServer(s, &service{}) })
	r := dialRude(t, addr)
	must(t, r.WriteSettings())
	each := func(do func(stream uint32) error) {
		for i := range uint32(requests) {
			must(t, do(2*i+1))
		}
		must(t, r.flush())
	}
	arrived := func() uint64 { // everything that was sent has arrived, and nothing else is left
		must(t, errors.Join(r.WritePing(false, [8]byte{}), r.flush()))
		for {
			f, err := r.ReadFrame()
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
		return errors.Join(r.headers(callOf(check)...), r.WriteData(stream, false, []byte{0, 0, 0, size >> 8, size & 255}))
	})
	before := arrived()
	request := append([]byte{0x7a, 0xfd, 0x7f}, make([]byte, size-3)...) // a text of a field that there is not
	for _, c := range request[:size-1] {
		each(func(stream uint32) error { return r.WriteData(stream, false, []byte{c}) })
	}
	if took := int64(arrived()) - int64(before); took > 4*requests*size {
		t.Errorf("%d bytes take %d", requests*size, took)
	}
	each(func(stream uint32) error { return r.WriteData(stream, true, request[size-1:]) })
	for ended := 0; ended < requests; {
		f, err := r.ReadFrame()
		must(t, err)
		if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
			ended++
		} else if _, ok := f.(*http2.RSTStreamFrame); ok {
			t.Fatal("a request is refused")
		}
	}
	eventually(t, s.ledger.free)
}

// TestPool: a buffer is at most twice as large as its content.
func TestPool(t *testing.T) {
	for n := 1 << 10; n <= 2*largestPooled; n = n*5/4 + 1 {
		data := pool.Get(n)
		if len(*data) != n || cap(*data) >= 2*n {
			t.Errorf("%d bytes have a buffer of %d with %d", n, len(*data), cap(*data))
		}
		pool.Put(data)
	}
}
