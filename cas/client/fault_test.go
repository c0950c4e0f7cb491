package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// A netStream lets a test look at, change and refuse the messages of a stream.
type netStream struct {
	grpc.ServerStream
	received func(m any) error
	sending  func(m any) error
}

func (s *netStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil || s.received == nil {
		return err
	}
	return s.received(m)
}

func (s *netStream) SendMsg(m any) error {
	if s.sending != nil {
		if err := s.sending(m); err == errNetDrop {
			return nil
		} else if err != nil {
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// onMethod applies to the streams of one method.
func onMethod(method string, change func(*netStream)) grpc.StreamServerInterceptor {
	return func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, call grpc.StreamHandler) error {
		if filepath.Base(info.FullMethod) != method {
			return call(srv, s)
		}
		changed := &netStream{ServerStream: s}
		change(changed)
		return call(srv, changed)
	}
}

// netNoise returns bytes that do not compress, so that they make many messages.
func netNoise(n int) []byte { return servertest.Bytes(1, 8*n)[:n] }

// The errors that a test can inject when a message is sent: the stream breaks, or the message is
// dropped silently.
var (
	errNetDrop   = errors.New("drop this message")
	errNetBroken = status.Error(codes.Unavailable, "as the test wants")
)

func TestClientResumesDownloads(t *testing.T) {
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
			s.sending = func(m any) error {
				if sent++; sent > 2 {
					return errNetBroken
				}
				return nil
			}
		})})
		data := netNoise(12 * wire.StreamChunk)
		d := f.Put(t, digest.SHA256, data)
		got, err := clientOf(f, Options{NoCompression: !compress}).Read(t.Context(), d)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if len(offsets) < 4 {
			t.Errorf("only %d streams, the fault did not happen", len(offsets))
		}
		for i, o := range offsets[1:] {
			if o <= offsets[i] {
				t.Errorf("streams began at %v", offsets)
			}
		}
	}
}

func TestClientResumesUploads(t *testing.T) {
	for what, c := range map[string]struct {
		compress bool
		noQuery  bool
	}{
		"plain": {}, "compressed": {compress: true}, "server cannot say": {noQuery: true},
	} {
		t.Run(what, func(t *testing.T) {
			var mu sync.Mutex
			var offsets []int64
			var received, breaks int
			config := servertest.Config{Stream: onMethod("Write", func(s *netStream) {
				first, here := true, 0
				s.received = func(m any) error {
					mu.Lock()
					defer mu.Unlock()
					r := m.(*bytestream.WriteRequest)
					if first {
						offsets = append(offsets, r.GetWriteOffset())
						first = false
					}
					if here++; here > 3 && breaks < 3 {
						breaks++
						return errNetBroken
					}
					received += len(r.GetData())
					return nil
				}
			})}
			if c.noQuery {
				config.Unary = failMethod("QueryWriteStatus", codes.Unimplemented)
			}
			f := servertest.Start(t, config)
			data := netNoise(12 * wire.StreamChunk)
			d := digest.Of(digest.SHA256, data)
			var reported int64
			err := clientOf(f, Options{NoCompression: !c.compress}).Upload(t.Context(),
				[]Blob{{Digest: d, Open: func() (io.ReadCloser, error) {
					return io.NopCloser(bytes.NewReader(data)), nil // no Seeker
				}}}, func(_ digest.Digest, n int64) { reported += n })
			if err != nil || reported != d.SizeBytes() {
				t.Fatalf("%d bytes reported, %v", reported, err)
			}
			if b, err := f.Store.ReadBlob(t.Context(), d); err != nil || !bytes.Equal(b, data) {
				t.Errorf("stored %d bytes, %v", len(b), err)
			}
			if breaks != 3 || len(offsets) != 4 {
				t.Fatalf("%d breaks, streams began at %v", breaks, offsets)
			}
			for i, o := range offsets[1:] {
				if (o > offsets[i]) == c.noQuery {
					t.Errorf("streams began at %v", offsets)
				}
			}
		})
	}
}

// The server has the blob before all of it is sent.
func TestClientUploadEndsEarly(t *testing.T) {
	for _, compress := range []bool{false, true} {
		data := netNoise(12 * wire.StreamChunk)
		d := digest.Of(digest.SHA256, data)
		var messages atomic.Int32
		var f *servertest.Farm
		f = servertest.Start(t, servertest.Config{Stream: onMethod("Write", func(s *netStream) {
			s.received = func(any) error {
				if messages.Add(1) == 1 {
					return f.Store.PutBytes(s.Context(), d, data)
				}
				return nil
			}
		})})
		var reported int64
		if err := clientOf(f, Options{NoCompression: !compress}).Upload(t.Context(),
			[]Blob{BytesBlob(d, data)}, func(_ digest.Digest, n int64) { reported += n }); err != nil {
			t.Error(err)
		}
		if n := messages.Load(); n != 1 || reported != d.SizeBytes() {
			t.Errorf("%d messages were read, %d bytes reported", n, reported)
		}
	}
}

func TestClientNoticesLies(t *testing.T) {
	for _, compress := range []bool{false, true} {
		for what, lie := range map[string]func([]byte) []byte{
			"changed": func(b []byte) []byte { return append(bytes.Clone(b[:len(b)-1]), b[len(b)-1]+1) },
			"longer":  func(b []byte) []byte { return append(bytes.Clone(b), 'x') },
			"shorter": func(b []byte) []byte { return b[:len(b)/2] },
		} {
			t.Run(fmt.Sprint(what, compress), func(t *testing.T) {
				small, large, honest := servertest.Bytes(1, 2000), servertest.Bytes(2, 2*cas.StreamAbove), []byte("honest")
				ds := []digest.Digest{digest.Of(digest.SHA256, small), digest.Of(digest.SHA256, large)}
				f := servertest.Start(t, servertest.Config{
					Unary: func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
						m, err := call(ctx, r)
						if answer, ok := m.(*repb.BatchReadBlobsResponse); ok {
							for _, e := range answer.GetResponses() {
								if e.GetDigest().GetHash() == ds[0].Hash() {
									e.Data = lie(e.Data)
								}
							}
						}
						return m, err
					},
					Stream: onMethod("Read", func(s *netStream) {
						s.sending = func(m any) error {
							r := m.(*bytestream.ReadResponse)
							r.Data = lie(r.Data)
							return nil
						}
					}),
				})
				for _, b := range [][]byte{small, large, honest} {
					f.Put(t, digest.SHA256, b)
				}
				client := clientOf(f, Options{NoCompression: !compress, RetryFor: 20 * time.Millisecond})
				for _, d := range ds {
					b, err := client.Read(t.Context(), d)
					if !errors.Is(err, cas.ErrCorrupt) || !strings.Contains(err.Error(), d.Hash()) || b != nil {
						t.Errorf("%s: %d bytes, %v", d, len(b), err)
					}
				}
				var sink servertest.Sink
				h := digest.Of(digest.SHA256, honest)
				if err := client.Fetch(t.Context(), append(ds, h), sink.Take); !errors.Is(err, cas.ErrCorrupt) {
					t.Error(err)
				}
				sink.Check(t, map[digest.Digest][]byte{h: honest})
			})
		}
	}
}

// Single entries of a batch may fail, be left out, or come unasked.
func TestClientBatchEntries(t *testing.T) {
	names := []string{"fine", "busy", "omitted", "damaged", "forbidden"}
	damaged, forbidden := digest.Of(digest.SHA256, []byte("damaged")), digest.Of(digest.SHA256, []byte("forbidden"))
	var calls atomic.Int32
	f := servertest.Start(t, servertest.Config{Unary: func(
		ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler,
	) (any, error) {
		m, err := call(ctx, r)
		answer, ok := m.(*repb.BatchReadBlobsResponse)
		if !ok {
			return m, err
		}
		first := calls.Add(1) == 1
		kept := []*repb.BatchReadBlobsResponse_Response{{Digest: netSHA.Proto(), Data: []byte("not asked for")}}
		for _, e := range answer.GetResponses() {
			switch string(e.GetData()) {
			case "busy":
				if first {
					e.Data, e.Status = nil, status.New(codes.ResourceExhausted, "busy").Proto()
				}
			case "omitted":
				continue
			case "damaged":
				e.Data, e.Status = nil, status.New(codes.DataLoss, "damaged").Proto()
			case "forbidden":
				e.Data, e.Status = nil, status.New(codes.PermissionDenied, "forbidden").Proto()
			}
			kept = append(kept, e)
		}
		answer.Responses = kept
		return answer, nil
	}})
	want := map[digest.Digest][]byte{}
	var ds []digest.Digest
	for _, n := range names {
		d := f.Put(t, digest.SHA256, []byte(n))
		ds = append(ds, d)
		want[d] = []byte(n)
	}
	delete(want, damaged)
	delete(want, forbidden)
	var sink servertest.Sink
	err := clientOf(f, Options{}).Fetch(t.Context(), ds, sink.Take)
	if !errors.Is(err, cas.ErrCorrupt) || !strings.Contains(err.Error(), damaged.Hash()) || !strings.Contains(err.Error(), forbidden.Hash()) {
		t.Error(err)
	}
	sink.Check(t, want)
}

// A server may send one page a call, break off, and add what is no part of the tree.
func TestClientGetTreeByPages(t *testing.T) {
	var calls atomic.Int32
	f := servertest.Start(t, servertest.Config{
		Server: server.Options{MaxBatchBytes: 300},
		Stream: onMethod("GetTree", func(s *netStream) {
			n := calls.Add(1)
			var pages int
			s.sending = func(m any) error {
				if pages++; pages > 1 {
					return map[bool]error{true: errNetBroken, false: errNetDrop}[n%2 == 0]
				}
				r := m.(*repb.GetTreeResponse)
				r.Directories = append(r.Directories, netDirectory("foreign"))
				return nil
			}
		}),
	})
	var children []digest.Digest
	for i := range 20 {
		children = append(children, f.PutMessage(t, netDirectory(fmt.Sprint(i))))
	}
	root := f.PutMessage(t, netDirectory("root", children...))
	tree, err := clientOf(f, Options{}).GetTree(t.Context(), root)
	if err != nil || len(tree) != 21 || !proto.Equal(tree[0], netDirectory("root", children...)) {
		t.Errorf("%d directories, %v", len(tree), err)
	}
	if calls.Load() < 5 {
		t.Errorf("only %d calls, the pages did not come one a call", calls.Load())
	}
	var missing *cas.MissingError
	if _, err := clientOf(f, Options{}).GetTree(t.Context(), netSHA); !errors.As(err, &missing) {
		t.Errorf("missing root: %v", err)
	}
}

// TestClientFetchTree reads a tree whose server sends one page a call, as far as the caller wants,
// and does not try again.
func TestClientFetchTree(t *testing.T) {
	var calls, fails atomic.Int32
	f := servertest.Start(t, servertest.Config{
		Server: server.Options{MaxBatchBytes: 300},
		Stream: onMethod("GetTree", func(s *netStream) {
			calls.Add(1)
			var pages int
			s.sending = func(any) error {
				switch pages++; {
				case fails.Load() > 0:
					return status.Error(codes.Unavailable, "away")
				case pages > 1:
					return errNetDrop
				}
				return nil
			}
		}),
	})
	var children []digest.Digest
	for i := range 20 {
		children = append(children, f.PutMessage(t, netDirectory(fmt.Sprint(i))))
	}
	root := f.PutMessage(t, netDirectory("root", children...))
	c := clientOf(f, Options{})
	for _, most := range []int{100, 1} {
		found := map[digest.Digest]bool{}
		calls.Store(0)
		if err := c.FetchTree(t.Context(), root, func(d digest.Digest, message []byte) bool {
			found[d] = digest.Of(digest.SHA256, message) == d
			return len(found) < most
		}); err != nil || len(found) != min(most, 21) || !found[root] {
			t.Errorf("at most %d: %v, %v", most, found, err)
		}
		if n := calls.Load(); most == 1 && n != 1 || most > 1 && n < 5 {
			t.Errorf("%d calls for %d", n, most)
		}
	}
	fails.Store(1)
	calls.Store(0)
	if err := c.FetchTree(t.Context(), root, func(digest.Digest, []byte) bool { return true }); status.Code(err) != codes.Unavailable || calls.Load() != 1 {
		t.Errorf("%d calls: %v", calls.Load(), err)
	}
}

// TestClientFetchTreeStandsBehind: a tree takes the turn of a download, so that those who wait need
// not wait for slow trees.
func TestClientFetchTreeStandsBehind(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	root := f.PutMessage(t, netDirectory("root"))
	c := clientOf(f, Options{})
	for _, from := range []*Client{c, c.Behind().(*Client)} {
		came := 0
		if err := from.FetchTree(t.Context(), root, func(digest.Digest, []byte) bool {
			came++
			if l := c.link; len(l.downloads) != 1 || (len(l.behind) == 1) != from.behind {
				t.Errorf("behind %t: %d downloads, %d of them behind", from.behind, len(l.downloads), len(l.behind))
			}
			return true
		}); err != nil || came != 1 {
			t.Errorf("%d came, %v", came, err)
		}
	}
	if l := c.link; len(l.slots)+len(l.downloads)+len(l.behind) > 0 {
		t.Error("a turn was not given back")
	}
}

// TestClientFetchTreeRefusesLargePages: a page is decoded only if that takes little memory.
func TestClientFetchTreeRefusesLargePages(t *testing.T) {
	f := servertest.Start(t, servertest.Config{})
	large := &repb.Directory{Symlinks: []*repb.SymlinkNode{{Name: "s", Target: strings.Repeat("t", treePageBytes)}}}
	child := f.PutMessage(t, large)
	root := f.PutMessage(t, netDirectory("root", child))
	c := clientOf(f, Options{})
	var came []digest.Digest
	err := c.FetchTree(t.Context(), root, func(d digest.Digest, _ []byte) bool {
		came = append(came, d)
		return true
	})
	if status.Code(err) != codes.ResourceExhausted || len(came) != 1 || came[0] != root {
		t.Errorf("%v came, %v", came, err)
	}
	if tree, err := c.GetTree(t.Context(), root); err != nil || len(tree) != 2 {
		t.Errorf("GetTree: %d directories, %v", len(tree), err)
	}
}

func TestClientGetTreeWithChangedDirectories(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Stream: onMethod("GetTree", func(s *netStream) {
		s.sending = func(m any) error {
			for _, d := range m.(*repb.GetTreeResponse).GetDirectories() {
				if d.GetFiles()[0].GetName() == "lie" {
					d.Files[0].IsExecutable = true
				}
			}
			return nil
		}
	})})
	lie := f.PutMessage(t, netDirectory("lie"))
	root := f.PutMessage(t, netDirectory("root", lie))
	if tree, err := clientOf(f, Options{}).GetTree(t.Context(), root); err != nil || len(tree) != 1 {
		t.Errorf("changed child: %d directories, %v", len(tree), err)
	}
	if tree, err := clientOf(f, Options{}).GetTree(t.Context(), lie); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("changed root: %v, %v", tree, err)
	}
}

// netDirectory makes a Directory that has a name of its own and children.
func netDirectory(name string, children ...digest.Digest) *repb.Directory {
	m := &repb.Directory{Files: []*repb.FileNode{{Name: name, Digest: digest.SHA256.Empty().Proto()}}}
	for i, d := range children {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("d%07d", i), Digest: d.Proto()})
	}
	return m
}
