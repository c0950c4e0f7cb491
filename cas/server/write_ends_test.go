package server

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// A writeEnd is one way for a ByteStream.Write of "abc" to end, and its answer.
type writeEnd struct {
	requests  []*bytestream.WriteRequest
	there     bool  // the blob is in the store before the stream ends
	committed int64 // of the answer
	code      codes.Code
	kept      int64 // of the upload, as QueryWriteStatus says; the blob's size if it is stored
}

// writeEnds returns all ways to end a Write by closing it. An empty name in a first request stands
// for the upload's name; z is the content as sent.
func writeEnds(name string, z []byte) map[string]writeEnd {
	type request = bytestream.WriteRequest
	const bad = codes.InvalidArgument
	size, half := int64(len(z)), len(z)/2
	tail := []byte("no frame of zstd")
	first := func(data []byte, finish bool) *request {
		return &request{ResourceName: name, Data: data, FinishWrite: finish}
	}
	then := func(offset int64, data []byte, finish bool) *request {
		return &request{WriteOffset: offset, Data: data, FinishWrite: finish}
	}
	list := func(rs ...*request) []*request { return rs }
	return map[string]writeEnd{
		"finished":            {list(first(z, true)), false, size, codes.OK, 3},
		"finished in pieces":  {list(first(z[:half], false), then(int64(half), z[half:], true)), false, size, codes.OK, 3},
		"finished on its own": {list(first(z, false), then(size, nil, true)), false, size, codes.OK, 3},
		"name said again":     {list(first(z[:half], false), &request{ResourceName: name, WriteOffset: int64(half), Data: z[half:], FinishWrite: true}), false, size, codes.OK, 3},

		"no message":             {nil, false, 0, bad, 0},
		"no name":                {list(then(0, z, true)), false, 0, bad, 0},
		"closed before any data": {list(first(nil, false)), false, 0, bad, 0},
		"closed with all of it":  {list(first(z, false)), false, 0, bad, 3},
		"finished without data":  {list(first(nil, true)), false, 0, bad, 0},
		"finished short":         {list(first(z[:half], true)), false, 0, bad, 0},
		"finished long":          {list(first(append(z[:size:size], tail...), true)), false, 0, bad, 0},
		"too long, not finished": {list(first(z, false), then(size, tail, false)), false, 0, bad, 0},

		// The answer comes with finish_write, also to a client that does not close its stream.
		"data after finish":     {list(first(z, true), then(size, []byte("x"), false)), false, size, codes.OK, 3},
		"nothing after finish":  {list(first(z, true), then(size, nil, false)), false, size, codes.OK, 3},
		"finished twice":        {list(first(z, true), then(size, nil, true)), false, size, codes.OK, 3},
		"short, data after it":  {list(first(z[:half], true), then(int64(half), z[half:], true)), false, 0, bad, 0},
		"later offset wrong":    {list(first(nil, false), then(1, z, true)), false, 0, bad, 0},
		"later offset negative": {list(first(nil, false), then(-1, z, true)), false, 0, bad, 0},
		"first offset ahead":    {list(&request{ResourceName: name, WriteOffset: 1, Data: z, FinishWrite: true}), false, 0, codes.Aborted, 0},
		"first offset outside":  {list(&request{ResourceName: name, WriteOffset: 4, Data: z, FinishWrite: true}), false, 0, bad, 0},
		"first offset negative": {list(&request{ResourceName: name, WriteOffset: -1, Data: z, FinishWrite: true}), false, 0, bad, 0},
		"name changed":          {list(first(nil, false), &request{ResourceName: name + "/x", Data: z, FinishWrite: true}), false, 0, bad, 0},

		"there, finished":   {list(first(z, true)), true, size, codes.OK, 3},
		"there, closed":     {list(first(z[:half], false)), true, size, codes.OK, 3},
		"there, bad offset": {list(&request{ResourceName: name, WriteOffset: 2}), true, size, codes.OK, 3},
	}
}

// However a Write ends, its response is what ByteStream and REv2 prescribe, and it is OK only if
// the blob is in the store.
func TestServerWriteEnds(t *testing.T) {
	plain := wire.Resource{Instance: "a/b", UUID: netTestUUID, Digest: netB3}.String()
	packed := strings.Replace(plain, "blobs", "compressed-blobs/zstd", 1)
	for form, ends := range map[string]map[string]writeEnd{
		"plain": writeEnds(plain, []byte("abc")),
		"zstd":  writeEnds(packed, netZstd(t, []byte("abc"))),
	} {
		for what, c := range ends {
			t.Run(form+"/"+what, func(t *testing.T) {
				f := netStart(t, netConfig{})
				if c.there {
					f.put(t, netB3.Function(), []byte("abc"))
					if form == "zstd" {
						c.committed = -1
					} else {
						c.committed = netB3.SizeBytes()
					}
				}
				committed, err := f.write(t, c.requests...)
				if status.Code(err) != c.code || committed != c.committed {
					t.Errorf("committed %d, %v, want %d, %s", committed, err, c.committed, c.code)
				}
				f.wantKept(t, map[string]string{"plain": plain, "zstd": packed}[form], c.kept, err == nil)
			})
		}
	}
}

// wantKept checks that the server has that many bytes of netB3, and that it has the blob if it
// reported success.
func (f *netFarm) wantKept(t *testing.T, name string, kept int64, saidOK bool) {
	t.Helper()
	stored := f.store.Contains(netB3)
	if saidOK && !stored {
		t.Error("the answer was OK, and the blob is not there")
	}
	if size, complete := f.query(t, name); size != kept || complete != stored {
		t.Errorf("query: %d bytes, complete %t, want %d, %t", size, complete, kept, stored)
	}
	if left := netTempFiles(t, f.store); (left == 1) != (kept > 0 && !stored) {
		t.Errorf("%d temporary files are left", left)
	}
}

// The empty blob always exists, whatever is sent for it.
func TestServerWriteOfNothing(t *testing.T) {
	for _, fn := range digest.Functions() {
		for form, want := range map[string]int64{"blobs": 0, "compressed-blobs/zstd": -1} {
			f := netStart(t, netConfig{})
			name := strings.Replace(wire.Resource{UUID: netTestUUID, Digest: fn.Empty()}.String(), "blobs", form, 1)
			for _, r := range []*bytestream.WriteRequest{
				{ResourceName: name}, {ResourceName: name, FinishWrite: true}, {ResourceName: name, Data: []byte("x")},
			} {
				if committed, err := f.write(t, r); err != nil || committed != want {
					t.Errorf("%v: committed %d, %v, want %d", r, committed, err, want)
				}
			}
			if _, complete := f.query(t, name); !complete {
				t.Errorf("%s is not complete", name)
			}
		}
	}
}

// A stream that is cut, not closed, leaves what arrived; if finish_write had come, the blob.
func TestServerWriteCut(t *testing.T) {
	data := netBytes(1, 3*wire.StreamChunk)
	d := digest.Of(digest.SHA256, data)
	name := wire.Resource{UUID: netTestUUID, Digest: d}.String()
	for what, c := range map[string]struct {
		sent   int
		finish bool
		bound  time.Duration // of the call; 0: it is cancelled
		code   codes.Code
	}{
		"cancelled early":          {2 * wire.StreamChunk, false, 0, codes.Canceled},
		"cancelled with all of it": {len(data), false, 0, codes.Canceled},
		"deadline early":           {2 * wire.StreamChunk, false, 3 * time.Second, codes.DeadlineExceeded},
		"deadline with all of it":  {len(data), false, 3 * time.Second, codes.DeadlineExceeded},
		"left open after finish":   {len(data), true, 0, codes.OK},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := netStart(t, netConfig{})
			ctx, cancel := context.WithCancel(t.Context())
			if c.bound > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), c.bound)
			}
			defer cancel()
			s, err := f.streams.Write(ctx)
			if err == nil {
				err = s.Send(&bytestream.WriteRequest{ResourceName: name, Data: data[:c.sent], FinishWrite: c.finish})
			}
			if err != nil {
				t.Fatal(err)
			}
			netWait(t, "what was sent", func() bool {
				n, complete := f.query(t, name)
				return n == int64(c.sent) && complete == c.finish
			})
			if c.bound == 0 && !c.finish {
				cancel()
			}
			if err := s.RecvMsg(new(bytestream.WriteResponse)); status.Code(err) != c.code {
				t.Errorf("%v, want %s", err, c.code)
			}
			if c.finish {
				return
			}
			netWait(t, "the turn to be given up", func() bool { return f.server.uploads.idle(name) })
			if n, complete := f.query(t, name); n != int64(c.sent) || complete {
				t.Errorf("%d bytes are kept, complete %t", n, complete)
			}
			committed, err := f.write(t, &bytestream.WriteRequest{
				ResourceName: name, WriteOffset: int64(c.sent), Data: data[c.sent:], FinishWrite: true,
			})
			if err != nil || committed != d.SizeBytes() || !f.store.Contains(d) {
				t.Errorf("resumed: committed %d, %v", committed, err)
			}
		})
	}
}

func (a *uploads) idle(name string) bool {
	r, _ := wire.ParseWrite(name)
	a.mu.Lock()
	defer a.mu.Unlock()
	u := a.byName[r]
	return u != nil && u.holder == nil
}

// If the blob appears before a stream is closed without finish_write, the response reports success.
func TestServerWriteClosedWhenItIsThere(t *testing.T) {
	plain := wire.Resource{UUID: netTestUUID, Digest: netB3}.String()
	for name, want := range map[string]int64{
		plain: 3, strings.Replace(plain, "blobs", "compressed-blobs/zstd", 1): -1,
	} {
		f := netStart(t, netConfig{})
		s, err := f.streams.Write(t.Context())
		if err == nil {
			err = s.Send(&bytestream.WriteRequest{ResourceName: name})
		}
		if err != nil {
			t.Fatal(err)
		}
		netWait(t, "the upload to begin", func() bool { return f.server.uploads.has(name) })
		f.put(t, netB3.Function(), []byte("abc"))
		if r, err := s.CloseAndRecv(); err != nil || r.GetCommittedSize() != want {
			t.Errorf("%s: %v, %v, want %d", name, r, err, want)
		}
		if n := netTempFiles(t, f.store); n != 0 || f.server.uploads.has(name) {
			t.Errorf("%d temporary files are left", n)
		}
	}
}

// Of two streams with the same name, the newer one continues; the older one gets an error.
func TestServerWriteTwoStreams(t *testing.T) {
	f := netStart(t, netConfig{})
	data := netBytes(1, 4*wire.StreamChunk)
	d := digest.Of(digest.SHA256, data)
	name := wire.Resource{UUID: netTestUUID, Digest: d}.String()
	part := func(i int) *bytestream.WriteRequest {
		at := i * wire.StreamChunk
		return &bytestream.WriteRequest{
			ResourceName: name, WriteOffset: int64(at), Data: data[at : at+wire.StreamChunk], FinishWrite: i == 3,
		}
	}
	send := func(s bytestream.ByteStream_WriteClient, i int) {
		if err := s.Send(part(i)); err != nil && err != io.EOF { // then the answer has it
			t.Fatal(err)
		}
	}
	open := func(i int) bytestream.ByteStream_WriteClient {
		s, err := f.streams.Write(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		send(s, i)
		netWait(t, "what was sent", func() bool { n, _ := f.query(t, name); return n == int64(i+1)*wire.StreamChunk })
		return s
	}
	older, younger := open(0), open(1)
	send(older, 1)
	if _, err := older.CloseAndRecv(); status.Code(err) != codes.Aborted {
		t.Errorf("the older: %v", err)
	}
	send(younger, 2)
	send(younger, 3)
	if r, err := younger.CloseAndRecv(); err != nil || r.GetCommittedSize() != d.SizeBytes() || !f.store.Contains(d) {
		t.Errorf("the younger: %v, %v", r, err)
	}
}
