package server

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/castest"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// An uploadBlob is a blob to be uploaded, and the name of its upload.
type uploadBlob struct {
	name wire.Resource
	data []byte
}

func uploadOf(i, size int) uploadBlob {
	data := bytes.Repeat([]byte{byte(i + 1)}, size)
	uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	return uploadBlob{wire.Resource{UUID: uuid, Digest: digest.Of(digest.SHA256, data)}, data}
}

// from returns the request that sends the bytes from offset on, but not the last less ones.
func (b uploadBlob) from(offset, less int) *bytestream.WriteRequest {
	return &bytestream.WriteRequest{
		ResourceName: b.name.String(), WriteOffset: int64(offset),
		Data: b.data[offset : len(b.data)-less], FinishWrite: less == 0,
	}
}

// uploadWantBound fails when s exceeds its bound: as it counts, or on disk.
func uploadWantBound(t *testing.T, s *disk.Store) {
	t.Helper()
	stats, written := s.Stats(), int64(0)
	for _, path := range castest.TempFiles(t, s) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		written += info.Size()
	}
	if stats.Bytes+written > stats.MaxBytes || written > s.Stats().ReservedBytes {
		t.Errorf("%d bytes of blobs and %d of uploads, %d reserved, in a store of %d",
			stats.Bytes, written, s.Stats().ReservedBytes, stats.MaxBytes)
	}
}

// Unfinished uploads count for the limit of the store and are evicted for new blobs. Their clients
// must start again.
func TestServerUnfinishedUploadsAreWithinTheBound(t *testing.T) {
	const size = 1 << 20
	f := netStart(t, netConfig{store: disk.Options{MaxBytes: size}})
	f.put(t, digest.SHA256, []byte("what is evicted first"))
	const unfinished = 5
	for i := range unfinished {
		b := uploadOf(i, size)
		if n, err := f.unfinished(t, b.from(0, 1)); n != size-1 || err != nil {
			t.Fatalf("upload %d: committed %d, %v", i, n, err)
		}
		uploadWantBound(t, f.store)
	}
	if n := f.store.Stats().EvictedBlobs; n != 1 {
		t.Errorf("%d blobs were evicted", n)
	}
	given, kept := uploadOf(unfinished-2, size), uploadOf(unfinished-1, size)
	if n, complete := f.query(t, given.name.String()); n != 0 || complete {
		t.Errorf("what gave way: committed %d, %t", n, complete)
	}
	_, err := f.write(t, given.from(size-1, 0))
	netCode(t, "what gave way, from its end", err, codes.Aborted)
	if n, _ := f.query(t, kept.name.String()); n != size-1 {
		t.Errorf("the latest: committed %d", n)
	}
	// The last byte of a blob as large as the store.
	if n, err := f.write(t, kept.from(size-1, 0)); n != size || err != nil {
		t.Errorf("the latest, finished: committed %d, %v", n, err)
	}
	castest.WantConsistent(t, f.store)
	if n, err := f.write(t, given.from(0, 0)); n != size || err != nil {
		t.Errorf("what gave way, from the start: committed %d, %v", n, err)
	}
	castest.WantConsistent(t, f.store)

	// A batch upload also evicts unfinished uploads.
	if n, err := f.unfinished(t, kept.from(0, 1)); n != size-1 || err != nil {
		t.Errorf("committed %d, %v", n, err)
	}
	small := uploadOf(unfinished, 1000)
	r, err := f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: small.name.Digest.Proto(), Data: small.data}},
	})
	if err != nil || r.GetResponses()[0].GetStatus().GetCode() != 0 || !f.store.Contains(small.name.Digest) {
		t.Errorf("batch: %v, %v", r, err)
	}
	castest.WantConsistent(t, f.store)
}

// A result with inline outputs also evicts unfinished uploads.
func TestServerInlineOutputsFindRoom(t *testing.T) {
	const size = 1 << 20
	f := netStart(t, netConfig{store: disk.Options{MaxBytes: size}, server: Options{AllowActionUpdates: true}})
	action := f.putAction(t, "a")
	result, err := f.store.ReadBlob(t.Context(), action)
	if err != nil {
		t.Fatal(err)
	}
	var m repb.Action
	if err := proto.Unmarshal(result, &m); err != nil {
		t.Fatal(err)
	}
	command, err := digest.FromProto(digest.SHA256, m.GetCommandDigest())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []digest.Digest{action, command} {
		unpin, _ := f.store.Pin(d)
		defer unpin()
	}
	idle := uploadOf(0, size-int(f.store.Stats().Bytes))
	if _, err := f.unfinished(t, idle.from(0, 1)); err != nil {
		t.Fatal(err)
	}
	r, err := f.update(t, "", action, &repb.ActionResult{StdoutRaw: []byte("hello")})
	if err != nil || r.GetStdoutDigest() == nil {
		t.Errorf("%v, %v", r, err)
	}
}

// A blob that can never fit does not evict anything.
func TestServerRefusesWhatNeverFits(t *testing.T) {
	const size = 1 << 20
	f := netStart(t, netConfig{store: disk.Options{MaxBytes: size}})
	idle, large := uploadOf(0, size), uploadOf(1, size+1)
	if _, err := f.unfinished(t, idle.from(0, 1)); err != nil {
		t.Fatal(err)
	}
	_, err := f.write(t, large.from(0, 0))
	netCode(t, "stream", err, codes.InvalidArgument)
	r, err := f.cas.BatchUpdateBlobs(t.Context(), &repb.BatchUpdateBlobsRequest{
		Requests: []*repb.BatchUpdateBlobsRequest_Request{{Digest: large.name.Digest.Proto(), Data: large.data}},
	})
	if err != nil || codes.Code(r.GetResponses()[0].GetStatus().GetCode()) != codes.InvalidArgument {
		t.Errorf("batch: %v, %v", r, err)
	}
	if n, _ := f.query(t, idle.name.String()); n != size-1 {
		t.Errorf("the other upload: committed %d", n)
	}
}

// A full disk takes uploads as long as there are blobs to evict, or uploads that
// broke off.
func TestServerUploadsToAFullDisk(t *testing.T) {
	const size = 5 << 20 / 2 // of the 4 MiB
	f := netStart(t, netConfig{
		dir: filepath.Join(castest.Tmpfs(t, "size=4m"), "blobs"), store: disk.Options{MaxBytes: 1 << 40},
	})
	for i := range 3 {
		f.put(t, digest.SHA256, uploadOf(i, 1<<20).data)
	}
	first, second := uploadOf(3, size), uploadOf(4, size)
	if n, err := f.unfinished(t, first.from(0, 1)); n != size-1 || err != nil {
		t.Errorf("over blobs: committed %d, %v", n, err)
	}
	if n := f.store.Stats().EvictedBlobs; n == 0 {
		t.Error("the disk was never full")
	}
	if n, err := f.write(t, second.from(0, 0)); n != size || err != nil {
		t.Errorf("over an upload: committed %d, %v", n, err)
	}
	if n, complete := f.query(t, first.name.String()); n != 0 || complete {
		t.Errorf("what gave way: committed %d, %t", n, complete)
	}
	if got, err := f.store.ReadBlob(t.Context(), second.name.Digest); err != nil || !bytes.Equal(got, second.data) {
		t.Errorf("stored %d bytes, %v", len(got), err)
	}
	castest.WantConsistent(t, f.store)
}

// Of uploads that are going on none gives way to another.
func TestUploadsThatGoOnDoNotGiveWay(t *testing.T) {
	const size = 600
	s := castest.OpenDisk(t, t.TempDir(), disk.Options{MaxBytes: 1000})
	a := newUploads(s, 3, time.Minute)
	first, second := uploadOf(0, size), uploadOf(1, size)
	running := uploadBegin(t, a, first, size-1)
	waiting := uploadBegin(t, a, second, 0)
	if n, err := waiting.Write(second.data); n != 0 || !errors.Is(err, cas.ErrNoSpace) {
		t.Fatalf("beside a running one: %d bytes, %v", n, err)
	}
	if _, err := running.Write(first.data[size-1:]); err != nil {
		t.Fatal(err)
	}
	running.release()
	if _, err := waiting.Write(second.data); err != nil {
		t.Fatal(err)
	}
	if n := a.committed(first.name); n != 0 {
		t.Errorf("what gave way: committed %d", n)
	}
	if err := waiting.finish(t.Context(), s.Of("")); err != nil {
		t.Fatal(err)
	}
	castest.WantConsistent(t, s)
}

// Idle uploads give way to whatever a program stores beside the Server, such as outputs of a
// worker.
func TestIdleUploadsGiveWayToTheProgram(t *testing.T) {
	const size = 1000
	f := netStart(t, netConfig{store: disk.Options{MaxBytes: size}})
	idle, b := uploadOf(0, size), uploadOf(1, size)
	d := b.name.Digest
	file := filepath.Join(t.TempDir(), "output")
	take := func() error {
		if err := os.WriteFile(file, b.data, 0o600); err != nil {
			return err
		}
		_, err := f.store.Take(t.Context(), file, d.Function())
		return err
	}
	for what, store := range map[string]func() error{
		"output": take,
		"bytes":  func() error { return f.store.PutBytes(t.Context(), d, b.data) },
		"input": func() error {
			in := f.store.Receive(d)
			defer in.Close()
			if _, err := in.WriteAt(b.data, 0); err != nil {
				in.Drop()
				return err
			}
			if err := in.Keep(t.Context()); err != nil {
				return err
			}
			f.store.Release(d)
			return nil
		},
	} {
		f.store.Evict(size)
		if _, err := f.unfinished(t, idle.from(0, 1)); err != nil {
			t.Fatal(err)
		}
		if err := store(); err != nil || !f.store.Has(d) {
			t.Errorf("%s: %v, stored: %t", what, err, f.store.Has(d))
		}
	}
	castest.WantConsistent(t, f.store)
}

// uploadBegin begins an upload and writes that many bytes of it.
func uploadBegin(t *testing.T, a *uploads, b uploadBlob, bytes int) *turn {
	t.Helper()
	turn, err := a.begin(b.name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if bytes == 0 {
		return turn
	}
	if _, err := turn.Write(b.data[:bytes]); err != nil {
		t.Fatal(err)
	}
	return turn
}

// When one gave way to another caller meanwhile, there may be room without the next.
func TestUploadsGiveWayNoMoreThanNeeded(t *testing.T) {
	s := castest.OpenDisk(t, t.TempDir(), disk.Options{})
	a := newUploads(s, 3, time.Minute)
	older, newer := uploadOf(0, 1000), uploadOf(1, 1000)
	uploadBegin(t, a, older, 10).release()
	uploadBegin(t, a, newer, 10).release()
	tries := 0
	if err := a.givingWay(func() error {
		if tries++; tries > 1 {
			return nil
		}
		a.giveWay(a.evicted.Load())
		return cas.ErrNoSpace
	}); err != nil {
		t.Error(err)
	}
	if a.committed(older.name) != 0 || a.committed(newer.name) != 10 {
		t.Errorf("committed %d of the older, %d of the newer", a.committed(older.name), a.committed(newer.name))
	}
}

// A caller whose instance name can have nothing does not take the uploads of others.
func TestUploadsGiveNoWayToNames(t *testing.T) {
	a := newUploads(castest.OpenDisk(t, t.TempDir(), disk.Options{}), 3, time.Minute)
	idle := uploadOf(0, 1000)
	uploadBegin(t, a, idle, 10).release()
	if err := a.givingWay(func() error { return fmt.Errorf("blob: %w", cas.ErrTooManyHolders) }); !errors.Is(err, cas.ErrTooManyHolders) {
		t.Error(err)
	}
	if n := a.committed(idle.name); n != 10 {
		t.Errorf("%d bytes of the upload of another are left", n)
	}
}

// An upload that comes while an evicted file is being removed finds room.
func TestUploadsGiveWayAtOnce(t *testing.T) {
	const size = 1000
	s := castest.OpenDisk(t, t.TempDir(), disk.Options{MaxBytes: size})
	a := newUploads(s, 3, time.Minute)
	idle, next := uploadOf(0, size), uploadOf(1, size)
	uploadBegin(t, a, idle, 10).release()
	removing := &a.byName[idle.name].io
	removing.Lock()
	var other errgroup.Group
	other.Go(func() error { a.giveWay(0); return nil })
	netWait(t, "the other", func() bool { return a.evicted.Load() == 1 })
	turn := uploadBegin(t, a, next, size)
	removing.Unlock()
	if err := errors.Join(other.Wait(), turn.finish(t.Context(), s.Of(""))); err != nil {
		t.Error(err)
	}
	castest.WantConsistent(t, s)
}

// As many uploads at once as fit all find room, though others are idle.
func TestUploadsAtOnceFindRoom(t *testing.T) {
	const size, fit = 64 << 10, 8
	s := castest.OpenDisk(t, t.TempDir(), disk.Options{MaxBytes: size * fit})
	a := newUploads(s, 100, time.Minute)
	for round := range 5 {
		for i := range fit {
			uploadBegin(t, a, uploadOf(i, size), size-1).release()
		}
		var running errgroup.Group
		var turns [fit]*turn
		for i := range fit {
			b := uploadOf(fit*(round+1)+i, size)
			turns[i] = uploadBegin(t, a, b, 0)
			running.Go(func() error {
				_, err := turns[i].Write(b.data)
				return err
			})
		}
		if err := running.Wait(); err != nil {
			t.Fatal(err)
		}
		for _, turn := range turns {
			if err := turn.finish(t.Context(), s.Of("")); err != nil {
				t.Fatal(err)
			}
		}
	}
	castest.WantConsistent(t, s)
}

// However an upload ends, its room is free again.
func TestUploadsGiveTheirRoomBack(t *testing.T) {
	const size = 1000
	b := uploadOf(0, size)
	now := time.Unix(1e9, 0)
	for what, end := range map[string]func(t *testing.T, s *disk.Store, a *uploads, turn *turn){
		"finished": func(t *testing.T, s *disk.Store, _ *uploads, turn *turn) {
			if _, err := turn.Write(b.data[size/2:]); err != nil {
				t.Error(err)
			}
			if err := turn.finish(t.Context(), s.Of("")); err != nil {
				t.Error(err)
			}
		},
		"there already": func(t *testing.T, s *disk.Store, _ *uploads, turn *turn) {
			if err := s.PutBytes(t.Context(), b.name.Digest, b.data); err != nil {
				t.Error(err)
			}
			if _, err := turn.Write(b.data[size/2:]); err != nil {
				t.Error(err)
			}
			if err := turn.finish(t.Context(), s.Of("")); err != nil {
				t.Error(err)
			}
		},
		"too short": func(t *testing.T, s *disk.Store, _ *uploads, turn *turn) {
			if err := turn.finish(t.Context(), s.Of("")); !errors.Is(err, cas.ErrCorrupt) {
				t.Error(err)
			}
		},
		"abandoned": func(_ *testing.T, _ *disk.Store, _ *uploads, turn *turn) { turn.abandon() },
		"begun anew": func(t *testing.T, s *disk.Store, a *uploads, _ *turn) {
			turn := uploadBegin(t, a, b, size/4)
			if got := s.Stats().ReservedBytes; got != size {
				t.Errorf("begun anew: %d bytes reserved", got)
			}
			turn.abandon()
		},
		"one idle too many": func(t *testing.T, _ *disk.Store, a *uploads, turn *turn) {
			turn.release()
			uploadBegin(t, a, uploadOf(1, size), 0).release()
			if n := a.committed(b.name); n != 0 {
				t.Errorf("committed %d", n)
			}
		},
		"too old": func(t *testing.T, _ *disk.Store, a *uploads, turn *turn) {
			turn.release()
			now = now.Add(a.maxAge)
			uploadBegin(t, a, uploadOf(1, size), 0).abandon()
			if n := a.committed(b.name); n != 0 {
				t.Errorf("committed %d", n)
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := castest.OpenDisk(t, t.TempDir(), disk.Options{})
			a := newUploads(s, 1, time.Minute)
			a.now = func() time.Time { now = now.Add(time.Second); return now }
			turn := uploadBegin(t, a, b, size/2)
			if got := s.Stats().ReservedBytes; got != size {
				t.Errorf("%d bytes reserved", got)
			}
			end(t, s, a, turn)
			castest.WantConsistent(t, s)
		})
	}
}
