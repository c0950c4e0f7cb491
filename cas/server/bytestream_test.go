package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/castest"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/wire"
)

func (f *netFarm) read(ctx context.Context, r *bytestream.ReadRequest) ([]byte, error) {
	s, err := f.streams.Read(ctx, r)
	if err != nil {
		return nil, err
	}
	var b []byte
	for {
		m, err := s.Recv()
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return b, err
		}
		b = append(b, m.GetData()...)
	}
}

func TestServerRead(t *testing.T) {
	f := netStart(t, netConfig{})
	data := netBytes(1, 700_000)
	for _, fn := range digest.Functions() {
		d := f.put(t, fn, data)
		plain := wire.Resource{Instance: "a/b", Digest: d}.String()
		size := d.SizeBytes()
		for _, c := range []struct {
			offset, limit int64
			want          []byte
			code          codes.Code
		}{
			{0, 0, data, codes.OK},
			{0, 10, data[:10], codes.OK},
			{300_001, 0, data[300_001:], codes.OK},
			{300_001, 300_000, data[300_001:600_001], codes.OK},
			{300_001, size, data[300_001:], codes.OK},
			{size, 0, nil, codes.OK},
			{size, 5, nil, codes.OK},
			{size + 1, 0, nil, codes.OutOfRange},
			{-1, 0, nil, codes.OutOfRange},
			{0, -1, nil, codes.InvalidArgument},
		} {
			got, err := f.read(t.Context(), &bytestream.ReadRequest{
				ResourceName: plain, ReadOffset: c.offset, ReadLimit: c.limit,
			})
			if status.Code(err) != c.code || !bytes.Equal(got, c.want) {
				t.Errorf("read [%d, +%d): %d bytes, %v", c.offset, c.limit, len(got), err)
			}
		}
		packed := strings.Replace(plain, "blobs", "compressed-blobs/zstd", 1)
		for _, offset := range []int64{0, 300_001, size} {
			got, err := f.read(t.Context(), &bytestream.ReadRequest{ResourceName: packed, ReadOffset: offset})
			if err != nil || len(got) == 0 || !bytes.Equal(netUnzstd(t, got), data[offset:]) {
				t.Errorf("compressed from %d: %d bytes, %v", offset, len(got), err)
			}
		}
		_, err := f.read(t.Context(), &bytestream.ReadRequest{ResourceName: packed, ReadLimit: 1})
		netCode(t, "compressed with a limit", err, codes.InvalidArgument)
		_, err = f.read(t.Context(), &bytestream.ReadRequest{ResourceName: packed, ReadOffset: size + 1})
		netCode(t, "compressed past the end", err, codes.OutOfRange)

		empty, err := f.read(t.Context(), &bytestream.ReadRequest{ResourceName: wire.Resource{Digest: fn.Empty()}.String()})
		if err != nil || len(empty) > 0 {
			t.Errorf("empty blob: %d bytes, %v", len(empty), err)
		}
	}
	_, err := f.read(t.Context(), &bytestream.ReadRequest{ResourceName: wire.Resource{Digest: netSHA}.String()})
	netCode(t, "missing", err, codes.NotFound)
	_, err = f.read(t.Context(), &bytestream.ReadRequest{ResourceName: "blobs/../x"})
	netCode(t, "bad name", err, codes.InvalidArgument)
}

func TestServerResourceHeader(t *testing.T) {
	f := netStart(t, netConfig{})
	name := wire.Resource{Digest: f.put(t, digest.SHA256, []byte("abc"))}.String()
	with := func(h string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(), wire.ResourceHeader, h)
	}
	if b, err := f.read(with(name), &bytestream.ReadRequest{ResourceName: name}); string(b) != "abc" {
		t.Errorf("read: %q, %v", b, err)
	}
	_, err := f.read(with(name+"x"), &bytestream.ReadRequest{ResourceName: name})
	netCode(t, "read", err, codes.InvalidArgument)
	up := wire.Resource{UUID: netTestUUID, Digest: netB3}.String()
	_, err = f.streams.QueryWriteStatus(with(name), &bytestream.QueryWriteStatusRequest{ResourceName: up})
	netCode(t, "query", err, codes.InvalidArgument)
}

// write sends requests and returns what the server answers.
func (f *netFarm) write(t *testing.T, rs ...*bytestream.WriteRequest) (int64, error) {
	t.Helper()
	s, err := f.streams.Write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rs {
		if s.Send(r) != nil {
			break // the reason is in the answer
		}
	}
	r, err := s.CloseAndRecv()
	return r.GetCommittedSize(), err
}

// unfinished sends a request and closes the stream, which is an error. It returns how much
// of the upload is kept.
func (f *netFarm) unfinished(t *testing.T, r *bytestream.WriteRequest) (int64, error) {
	t.Helper()
	if _, err := f.write(t, r); status.Code(err) != codes.InvalidArgument {
		return 0, fmt.Errorf("a stream without finish_write: %w", err)
	}
	kept, _ := f.query(t, r.GetResourceName())
	return kept, nil
}

func (f *netFarm) query(t *testing.T, name string) (int64, bool) {
	t.Helper()
	r, err := f.streams.QueryWriteStatus(t.Context(), &bytestream.QueryWriteStatusRequest{ResourceName: name})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetCommittedSize(), r.GetComplete()
}

func TestServerWrite(t *testing.T) {
	type request = bytestream.WriteRequest
	name := wire.Resource{Instance: "a/b", UUID: netTestUUID, Digest: netB3}.String()
	packed := strings.Replace(name, "blobs", "compressed-blobs/zstd", 1)
	z := netZstd(t, []byte("abc"))
	one := func(name string, offset int64, data string) []*request {
		return []*request{{ResourceName: name, WriteOffset: offset, Data: []byte(data), FinishWrite: true}}
	}
	two := func(second *request) []*request {
		return []*request{{ResourceName: name, Data: []byte("a")}, second}
	}
	bad := codes.InvalidArgument
	for what, c := range map[string]struct {
		requests  []*request
		committed int64
		code      codes.Code
		stored    bool
		kept      bool // received bytes are kept for resumption
	}{
		"at once":    {one(name, 0, "abc"), 3, codes.OK, true, false},
		"metadata":   {one(name+"/a/b", 0, "abc"), 3, codes.OK, true, false},
		"in pieces":  {two(&request{ResourceName: name, WriteOffset: 1, Data: []byte("bc"), FinishWrite: true}), 3, codes.OK, true, false},
		"empty last": {[]*request{{ResourceName: name}, {Data: []byte("abc")}, {WriteOffset: 3, FinishWrite: true}}, 3, codes.OK, true, false},
		"compressed": {
			[]*request{{ResourceName: packed, Data: z[:5]}, {WriteOffset: 5, Data: z[5:], FinishWrite: true}},
			int64(len(z)), codes.OK, true, false,
		},
		"bad zstd":    {one(packed, 0, "abc"), 0, bad, false, false},
		"half zstd":   {one(packed, 0, string(z[:5])), 0, bad, false, false},
		"zstd bomb":   {one(packed, 0, string(netZstd(t, make([]byte, 64<<20)))), 0, bad, false, false},
		"no request":  {nil, 0, bad, false, false},
		"no name":     {one("", 0, "abc"), 0, bad, false, false},
		"read name":   {one(wire.Resource{Digest: netB3}.String(), 0, "abc"), 0, bad, false, false},
		"too short":   {one(name, 0, "ab"), 0, bad, false, false},
		"too long":    {one(name, 0, "abcd"), 0, bad, false, false},
		"wrong bytes": {one(name, 0, "abd"), 0, bad, false, false},
		"from 1":      {one(name, 1, "bc"), 0, codes.Aborted, false, false},
		"from -1":     {one(name, -1, "abc"), 0, bad, false, false},
		"from 4":      {one(name, 4, ""), 0, bad, false, false},
		"gap":         {two(&request{WriteOffset: 2, Data: []byte("c"), FinishWrite: true}), 0, bad, false, true},
		"overlap":     {two(&request{WriteOffset: 0, Data: []byte("abc"), FinishWrite: true}), 0, bad, false, true},
		"other name": {
			two(&request{ResourceName: name + "/x", WriteOffset: 1, Data: []byte("bc"), FinishWrite: true}),
			0, bad, false, true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := netStart(t, netConfig{})
			committed, err := f.write(t, c.requests...)
			if status.Code(err) != c.code || committed != c.committed {
				t.Errorf("committed %d, %v, want %d, %s", committed, err, c.committed, c.code)
			}
			if f.store.Contains(netB3) != c.stored {
				t.Errorf("stored: %t, want %t", !c.stored, c.stored)
			}
			if size, complete := f.query(t, name); complete != c.stored || c.stored && size != 3 {
				t.Errorf("query: %d, %t", size, complete)
			}
			if left := netTempFiles(t, f.store); (left == 1) != c.kept {
				t.Errorf("%d temporary files are left", left)
			}
		})
	}
}

func netTempFiles(t *testing.T, s *disk.Store) int {
	t.Helper()
	es, err := os.ReadDir(s.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return len(es)
}

func TestServerWriteOfWhatIsThere(t *testing.T) {
	f := netStart(t, netConfig{server: Options{MaxBlobBytes: 100}})
	d := f.put(t, digest.SHA256, []byte("abc"))
	name := wire.Resource{UUID: netTestUUID, Digest: d}.String()
	// However much is sent, from wherever, finished or not.
	for _, r := range []*bytestream.WriteRequest{
		{ResourceName: name, Data: []byte("a")},
		{ResourceName: name, WriteOffset: 2},
		{ResourceName: wire.Resource{UUID: netTestUUID, Digest: digest.SHA256.Empty()}.String(), FinishWrite: true},
	} {
		if committed, err := f.write(t, r); err != nil || committed != 3 && !strings.HasSuffix(r.GetResourceName(), "/0") {
			t.Errorf("%v: committed %d, %v", r, committed, err)
		}
	}
	committed, err := f.write(t, &bytestream.WriteRequest{
		ResourceName: strings.Replace(name, "blobs", "compressed-blobs/zstd", 1), Data: []byte("a"),
	})
	if err != nil || committed != -1 {
		t.Errorf("compressed: committed %d, %v", committed, err)
	}
	_, err = f.write(t, &bytestream.WriteRequest{
		ResourceName: wire.Resource{UUID: netTestUUID, Digest: digest.Of(digest.SHA256, make([]byte, 101))}.String(),
	})
	netCode(t, "larger than allowed", err, codes.InvalidArgument)
}

// A blob that turns up while it is being uploaded ends the upload.
func TestServerWriteOvertaken(t *testing.T) {
	f := netStart(t, netConfig{})
	data := netBytes(1, 3*lookAgainBytes)
	d := digest.Of(digest.SHA256, data)
	s, err := f.streams.Write(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	name := wire.Resource{UUID: netTestUUID, Digest: d}.String()
	if err := s.Send(&bytestream.WriteRequest{ResourceName: name, Data: data[:1]}); err != nil {
		t.Fatal(err)
	}
	netWait(t, "the upload to begin", func() bool { return f.server.uploads.has(name) })
	f.put(t, digest.SHA256, data)
	for at := 1; at < len(data); at += 1 << 20 {
		r := &bytestream.WriteRequest{WriteOffset: int64(at), Data: data[at:min(at+1<<20, len(data))]}
		if err := s.Send(r); err != nil {
			break
		}
	}
	if r, err := s.CloseAndRecv(); err != nil || r.GetCommittedSize() != d.SizeBytes() {
		t.Errorf("answer: %v, %v", r, err)
	}
	if n := netTempFiles(t, f.store); n != 0 {
		t.Errorf("%d temporary files are left", n)
	}
}

func (a *uploads) has(name string) bool {
	r, err := wire.ParseWrite(name)
	if err != nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byName[r] != nil
}

// netWait polls until the server has done something asynchronous.
func netWait(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting for %s", what)
		}
	}
}

// A stream that breaks off is resumed where it ended, also by one that comes
// while the server still believes in the first.
func TestServerWriteResumes(t *testing.T) {
	data := netBytes(3, 900_000)
	z1, z2 := netZstd(t, data[:400_000]), netZstd(t, data[400_000:])
	for _, c := range []struct {
		what        string
		packed      bool
		breakOff    bool // or leave the first stream open
		part1, rest []byte
		restAt      int64
	}{
		{"plain, broken", false, true, data[:400_000], data[400_000:], 400_000},
		{"plain, hanging", false, false, data[:2*wire.StreamChunk], data[2*wire.StreamChunk:], 2 * wire.StreamChunk},
		{"compressed, broken", true, true, z1, z2, 400_000},
	} {
		t.Run(c.what, func(t *testing.T) {
			f := netStart(t, netConfig{})
			d := digest.Of(digest.SHA256, data)
			name := wire.Resource{UUID: netTestUUID, Digest: d}.String()
			if c.packed {
				name = strings.Replace(name, "blobs", "compressed-blobs/zstd", 1)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := f.streams.Write(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(&bytestream.WriteRequest{ResourceName: name, Data: c.part1}); err != nil {
				t.Fatal(err)
			}
			if c.breakOff {
				netWait(t, "the upload to begin", func() bool { return f.server.uploads.has(name) })
				cancel()
			}
			netWait(t, "the first part", func() bool {
				size, complete := f.query(t, name)
				return size == c.restAt && !complete
			})
			_, err = f.write(t, &bytestream.WriteRequest{ResourceName: name, WriteOffset: c.restAt - 1, Data: []byte("x")})
			netCode(t, "wrong offset", err, codes.Aborted)
			committed, err := f.write(t, &bytestream.WriteRequest{
				ResourceName: name, WriteOffset: c.restAt, Data: c.rest, FinishWrite: true,
			})
			if err != nil || committed != c.restAt+int64(len(c.rest)) {
				t.Errorf("committed %d, %v", committed, err)
			}
			got, err := f.store.ReadBlob(t.Context(), d)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("stored %d bytes, %v", len(got), err)
			}
			if !c.breakOff {
				_ = s.Send(&bytestream.WriteRequest{WriteOffset: c.restAt, Data: c.rest, FinishWrite: true})
				if _, err := s.CloseAndRecv(); status.Code(err) != codes.Aborted {
					t.Errorf("the stream that was replaced: %v", err)
				}
			}
		})
	}
}

func TestServerWriteStartsAnewAtZero(t *testing.T) {
	f := netStart(t, netConfig{})
	name := wire.Resource{UUID: netTestUUID, Digest: netSHA}.String()
	if n, err := f.unfinished(t, &bytestream.WriteRequest{ResourceName: name, Data: []byte("xy")}); n != 2 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := f.write(t, &bytestream.WriteRequest{ResourceName: name, Data: []byte("abc"), FinishWrite: true}); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	if b, err := f.store.ReadBlob(t.Context(), netSHA); string(b) != "abc" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestUploadsAreBounded(t *testing.T) {
	s := castest.OpenDisk(t, t.TempDir(), disk.Options{})
	now := time.Unix(1e9, 0)
	a := newUploads(s, 3, time.Minute)
	a.now = func() time.Time { return now }
	name := func(i int) wire.Resource { return wire.Resource{UUID: strconv.Itoa(i), Digest: netSHA} }
	for i := range 5 {
		turn, err := a.begin(name(i), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := turn.Write([]byte("ab")); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
		turn.release()
	}
	for i, want := range []int64{0, 0, 2, 2, 2} {
		if got := a.committed(name(i)); got != want {
			t.Errorf("upload %d: %d bytes, want %d", i, got, want)
		}
	}
	now = now.Add(time.Minute - time.Second) // uploads 2 and 3 are a minute old, or older
	turn, err := a.begin(name(4), 2)
	if err != nil {
		t.Fatal(err)
	}
	if names := castest.TempFiles(t, s); len(names) != 1 || len(a.byName) != 1 || s.Stats().ReservedBytes != 3 {
		t.Errorf("files %q, %d uploads, %d bytes reserved", names, len(a.byName), s.Stats().ReservedBytes)
	}
	if _, err := turn.Write([]byte("cd")); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("write past the end: %v", err)
	}
	now = now.Add(time.Hour) // an upload that receives bytes does not expire
	if _, err := turn.Write([]byte("c")); err != nil {
		t.Error(err)
	}
	for _, path := range castest.TempFiles(t, s) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if err := turn.finish(t.Context(), s.Of("")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("finish without the file: %v", err)
	}
	if len(a.byName) != 0 || s.Contains(netSHA) {
		t.Errorf("%d uploads are left, the blob is there: %t", len(a.byName), s.Contains(netSHA))
	}
	castest.WantConsistent(t, s)
	if _, err := turn.Write(nil); status.Code(err) != codes.Aborted {
		t.Errorf("write after the end: %v", err)
	}
}

func TestUploadTurnIsTakenAway(t *testing.T) {
	s := castest.OpenDisk(t, t.TempDir(), disk.Options{})
	a := newUploads(s, 1, time.Minute)
	name := wire.Resource{UUID: netTestUUID, Digest: netSHA}
	older, err := a.begin(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := older.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	newer, err := a.begin(name, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := older.Write([]byte("b")); status.Code(err) != codes.Aborted {
		t.Errorf("write in the older turn: %v", err)
	}
	if err := older.finish(t.Context(), s.Of("")); status.Code(err) != codes.Aborted {
		t.Errorf("finish in the older turn: %v", err)
	}
	older.abandon()
	older.release()
	if _, err := newer.Write([]byte("bc")); err != nil {
		t.Errorf("write in the newer turn: %v", err)
	}
	if err := newer.finish(t.Context(), s.Of("")); err != nil {
		t.Errorf("finish in the newer turn: %v", err)
	}
	castest.WantConsistent(t, s)
}
