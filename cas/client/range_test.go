package client

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// tailOf returns the part of d from an offset to its end.
func tailOf(d digest.Digest, from int64) span.Span { return span.Span{From: from, To: d.SizeBytes()} }

func TestClientFetchRangeResumes(t *testing.T) {
	for _, compress := range []bool{false, true} {
		var mu sync.Mutex
		var offsets []int64
		f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
			var sent int
			s.received = func(m any) error {
				mu.Lock()
				defer mu.Unlock()
				offsets = append(offsets, m.(*bytestream.ReadRequest).GetReadOffset())
				return nil
			}
			s.sending = func(any) error {
				if sent++; sent > 2 {
					return errNetBroken
				}
				return nil
			}
		})})
		data := netNoise(12 * wire.StreamChunk)
		d := f.Put(t, digest.SHA256, data)
		for _, from := range []int64{0, 1, 5*wire.StreamChunk + 3, int64(len(data)) - 1, int64(len(data))} {
			offsets = nil
			var got bytes.Buffer
			if err := clientOf(f, Options{NoCompression: !compress}).FetchRange(t.Context(), d, tailOf(d, from), &got); err != nil ||
				!bytes.Equal(got.Bytes(), data[from:]) {
				t.Errorf("from %d: %d bytes, %v", from, got.Len(), err)
			}
			if from < 6*wire.StreamChunk && len(offsets) < 3 {
				t.Errorf("only %d streams, the fault did not happen", len(offsets))
			}
			for i, o := range offsets {
				if i == 0 && o != from || i > 0 && o <= offsets[i-1] {
					t.Errorf("from %d: streams began at %v", from, offsets)
				}
			}
		}
	}
}

// fullWriter accepts a number of bytes and then fails.
type fullWriter int

func (w *fullWriter) Write(p []byte) (int, error) {
	n := min(int(*w), len(p))
	*w -= fullWriter(n)
	if n < len(p) {
		return n, errNetDrop
	}
	return n, nil
}

func TestClientFetchRangeFails(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	data := netNoise(12 * wire.StreamChunk)
	d := f.Put(t, digest.SHA256, data)
	missing := digest.Of(digest.SHA256, []byte("missing"))
	c := clientOf(f, Options{})
	full := fullWriter(wire.StreamChunk)
	if err := c.FetchRange(t.Context(), d, tailOf(d, 10), &full); !errors.Is(err, errNetDrop) || full != 0 {
		t.Errorf("full writer: %v, %d left", err, full)
	}
	var named *cas.MissingError
	if err := c.FetchRange(t.Context(), missing, tailOf(missing, 3), &bytes.Buffer{}); !errors.As(err, &named) ||
		len(named.Digests) != 1 || named.Digests[0] != missing {
		t.Errorf("missing: %v", err)
	}
	for _, part := range []span.Span{tailOf(d, -1), tailOf(d, d.SizeBytes()+1), {From: 0, To: d.SizeBytes() + 1}, {From: 5, To: 4}} {
		if err := c.FetchRange(t.Context(), d, part, &bytes.Buffer{}); err == nil {
			t.Errorf("%v", part)
		}
	}
}

func TestClientFetchRangeNoticesTheLength(t *testing.T) {
	for what, lie := range map[string]func(*bytestream.ReadResponse) error{
		"longer": func(r *bytestream.ReadResponse) error {
			r.Data = append(bytes.Clone(r.Data), "longer"...)
			return nil
		},
		"shorter": func(r *bytestream.ReadResponse) error {
			r.Data = r.Data[:len(r.Data)/2]
			return nil
		},
		"damaged": func(*bytestream.ReadResponse) error { return status.Error(codes.DataLoss, "damaged") },
	} {
		f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
			s.sending = func(m any) error { return lie(m.(*bytestream.ReadResponse)) }
		})})
		d := f.Put(t, digest.SHA256, netNoise(5*wire.StreamChunk))
		c := clientOf(f, Options{NoCompression: true, RetryFor: 20 * time.Millisecond})
		err := c.FetchRange(t.Context(), d, tailOf(d, wire.StreamChunk), &bytes.Buffer{})
		if !errors.Is(err, cas.ErrCorrupt) || !strings.Contains(err.Error(), d.Hash()) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Large downloads leave calls for small ones.
func TestClientDownloadsLeaveRoom(t *testing.T) {
	gate, reading := make(chan struct{}), make(chan struct{}, 100)
	f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
		s.received = func(any) error {
			reading <- struct{}{}
			<-gate
			return nil
		}
	})})
	c := clientOf(f, Options{MaxConcurrent: 4})
	var large []digest.Digest
	for i := range 10 {
		large = append(large, f.Put(t, digest.SHA256, servertest.Bytes(uint64(i), cas.StreamAbove+1)))
	}
	small := f.Put(t, digest.SHA256, []byte("small"))
	var sink servertest.Sink
	failed := make(chan error, 11)
	go func() { failed <- c.Fetch(t.Context(), large, sink.Take) }()
	for _, d := range large {
		go func() { failed <- c.FetchRange(t.Context(), d, tailOf(d, 5), &bytes.Buffer{}) }()
	}
	for range 3 {
		<-reading
	}
	if b, err := c.Read(t.Context(), small); string(b) != "small" || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
	if n := len(reading); n > 0 {
		t.Errorf("%d downloads more than the bound", n)
	}
	close(gate)
	for i := range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(fmt.Errorf("download %d: %w", i, err))
		}
	}
}

// A part is asked for as a part, uncompressed, and a server that sends more than that does no harm.
func TestClientFetchRangeOfAPart(t *testing.T) {
	for _, ignores := range []bool{false, true} {
		var mu sync.Mutex
		var asked []*bytestream.ReadRequest
		f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
			var sent int
			s.received = func(m any) error {
				mu.Lock()
				defer mu.Unlock()
				r := m.(*bytestream.ReadRequest)
				asked = append(asked, proto.Clone(r).(*bytestream.ReadRequest))
				if ignores {
					r.ReadLimit = 0
				}
				return nil
			}
			s.sending = func(any) error {
				if sent++; sent > 2 {
					return errNetBroken
				}
				return nil
			}
		})})
		data := bytes.Repeat([]byte("compressible "), wire.StreamChunk)
		d := f.Put(t, digest.SHA256, data)
		size := int64(len(data))
		for _, part := range []span.Span{
			{From: 0, To: 1}, {From: 0, To: 0}, {From: 7, To: 7}, {From: 3, To: 4*wire.StreamChunk + 1}, {From: size - 9, To: size - 1},
		} {
			asked = nil
			var got bytes.Buffer
			err := clientOf(f, Options{}).FetchRange(t.Context(), d, part, &got)
			if err != nil || !bytes.Equal(got.Bytes(), data[part.From:part.To]) {
				t.Errorf("%v: %d bytes, %v", part, got.Len(), err)
			}
			if part.To-part.From > 2*wire.StreamChunk && len(asked) < 2 {
				t.Errorf("only %d streams, the fault did not happen", len(asked))
			}
			if empty := part.From == part.To; empty != (len(asked) == 0) {
				t.Errorf("%v: %d calls", part, len(asked))
			}
			for _, r := range asked {
				if r.GetReadOffset()+r.GetReadLimit() != part.To || strings.Contains(r.GetResourceName(), "compressed") {
					t.Errorf("%v: asked for %v", part, r)
				}
			}
		}
	}
}

// A server that does not take read_limit is asked for a part with one only once in a while, and its
// parts come all the same.
func TestClientRemembersThatLimitsAreRefused(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.InvalidArgument} {
		var mu sync.Mutex
		limited, asked := 0, 0
		f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
			s.received = func(m any) error {
				mu.Lock()
				defer mu.Unlock()
				asked++
				if m.(*bytestream.ReadRequest).GetReadLimit() == 0 {
					return nil
				}
				limited++
				return status.Error(code, "no parts of files")
			}
		})})
		c := clientOf(f, Options{NoCompression: true})
		for i := range 4 {
			data := servertest.Bytes(uint64(i), 9*wire.StreamChunk)
			d := f.Put(t, digest.SHA256, data)
			var got bytes.Buffer
			part := span.Span{From: 7, To: 3 * wire.StreamChunk}
			if err := c.FetchRange(t.Context(), d, part, &got); err != nil || !bytes.Equal(got.Bytes(), data[part.From:part.To]) {
				t.Errorf("%s: %d bytes, %v", code, got.Len(), err)
			}
		}
		if limited != 1 || asked != 5 {
			t.Errorf("%s: %d calls for 4 parts, %d of them with a limit", code, asked, limited)
		}
		long := time.Now().Add(-refusalAge)
		c.link.refusal.at.Store(&long)
		d := f.Put(t, digest.SHA256, netNoise(9*wire.StreamChunk))
		if err := c.FetchRange(t.Context(), d, span.Span{To: 5}, &bytes.Buffer{}); err != nil || limited != 2 {
			t.Errorf("%s: after a while %d calls have a limit, %v", code, limited, err)
		}
	}
}

// A server that does not begin inside a blob is asked for all of it: parts come, and broken streams
// are resumed, all the same.
func TestClientReadsFromTheStart(t *testing.T) {
	for _, code := range []codes.Code{codes.Unimplemented, codes.InvalidArgument, codes.OutOfRange} {
		var mu sync.Mutex
		streams := 0
		f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
			var sent int
			mu.Lock()
			defer mu.Unlock()
			streams++
			breaks := streams == 1
			s.received = func(m any) error {
				if m.(*bytestream.ReadRequest).GetReadOffset() == 0 {
					return nil
				}
				return status.Error(code, "no offsets")
			}
			s.sending = func(any) error {
				if sent++; sent > 2 && breaks {
					return errNetBroken
				}
				return nil
			}
		})})
		data := netNoise(9 * wire.StreamChunk)
		d := f.Put(t, digest.SHA256, data)
		for _, compress := range []bool{false, true} {
			c := clientOf(f, Options{NoCompression: !compress})
			for _, part := range []span.Span{{From: 0, To: 3 * wire.StreamChunk}, {From: 7, To: 3 * wire.StreamChunk}, tailOf(d, 5*wire.StreamChunk)} {
				var got bytes.Buffer
				if err := c.FetchRange(t.Context(), d, part, &got); err != nil || !bytes.Equal(got.Bytes(), data[part.From:part.To]) {
					t.Errorf("%s, compressed %t, %v: %d bytes, %v", code, compress, part, got.Len(), err)
				}
			}
			mu.Lock()
			streams = 0 // the next one breaks
			mu.Unlock()
			if b, err := c.Read(t.Context(), d); err != nil || !bytes.Equal(b, data) {
				t.Errorf("%s, compressed %t: %d bytes, %v", code, compress, len(b), err)
			}
		}
	}
}

// A part that comes short is no part.
func TestClientFetchRangeNoticesAShortPart(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
		s.received = func(m any) error {
			m.(*bytestream.ReadRequest).ReadLimit = 10
			return nil
		}
	})})
	d := f.Put(t, digest.SHA256, netNoise(5*wire.StreamChunk))
	if err := clientOf(f, Options{}).FetchRange(t.Context(), d, span.Span{From: 5, To: 25}, &bytes.Buffer{}); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("a short part: %v", err)
	}
}

// A Client whose calls wait for others tells when one waits no longer, and others do not.
func TestClientFetchRangeTellsWhenItBegins(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	data := []byte("some text")
	d := f.Put(t, digest.SHA256, data)
	c := clientOf(f, Options{})
	for _, from := range []cas.Fetcher{c, c.Behind()} {
		var got pieces
		err := from.(cas.RangeFetcher).FetchRange(t.Context(), d, span.Span{From: 5, To: 9}, &got)
		want := pieces{"text"}
		if from != cas.Fetcher(c) {
			want = pieces{"", "text"}
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if err := c.Behind().(cas.RangeFetcher).FetchRange(t.Context(), d, span.Span{From: 5, To: 9}, refuser{}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after a refusal: %v", err)
	}
}

// pieces are what was written.
type pieces []string

func (p *pieces) Write(b []byte) (int, error) {
	*p = append(*p, string(b))
	return len(b), nil
}

type refuser struct{}

func (refuser) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
