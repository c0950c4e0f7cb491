package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/castest"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/rpctest"
)

// A peerFarm is a store that peers read.
type peerFarm struct {
	*servertest.Farm
	server *Server
	peer   *Peer
	asked  atomic.Int64 // calls
	// answer, if set, takes the place of the Server in calls that are not streams.
	answer func(ctx context.Context, call func() (any, error)) (any, error)
	// fails, if set, is what all calls end with.
	fails error
	// garble has streams fetch something else.
	garble bool
}

func startPeer(t *testing.T, texts ...string) *peerFarm {
	t.Helper()
	f := &peerFarm{Farm: &servertest.Farm{Store: castest.OpenDisk(t, t.TempDir(), disk.Options{})}}
	f.server = NewServer(f.Store, nil)
	for _, text := range texts {
		f.Put(t, digest.SHA256, []byte(text))
	}
	g := grpc.NewServer(
		grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
			f.asked.Add(1)
			switch {
			case f.fails != nil:
				return nil, f.fails
			case f.answer == nil:
				return call(ctx, r)
			}
			return f.answer(ctx, func() (any, error) { return call(ctx, r) })
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, call grpc.StreamHandler) error {
			f.asked.Add(1)
			if f.fails != nil {
				return f.fails
			}
			if f.garble {
				s = garbled{s}
			}
			return call(srv, s)
		}))
	f.server.Register(g)
	f.Conn = rpctest.Serve(t, g)
	f.peer = New(f.Conn, "test", nil)
	return f
}

// garbled changes the first byte of each message that is sent.
type garbled struct{ grpc.ServerStream }

func (g garbled) SendMsg(m any) error {
	if r, ok := m.(interface{ GetData() []byte }); ok && len(r.GetData()) > 0 {
		r.GetData()[0] ^= 1
	}
	return g.ServerStream.SendMsg(m)
}

// A heard has the requests that storage received.
type heard struct {
	mu    sync.Mutex
	blobs int
	gate  chan struct{} // nil, or closed when storage answers
}

func (h *heard) unary(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
	if read, ok := r.(*repb.BatchReadBlobsRequest); ok {
		h.mu.Lock()
		h.blobs += len(read.GetDigests())
		h.mu.Unlock()
		if h.gate != nil {
			select {
			case <-h.gate:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return call(ctx, r)
}

func (h *heard) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, call grpc.StreamHandler) error {
	h.mu.Lock()
	h.blobs++
	h.mu.Unlock()
	return call(srv, s)
}

// peerTexts returns texts of all sizes that are treated differently, except the size for which
// peers are not asked.
func peerTexts() (texts []string) {
	for _, n := range []int{1, 100, cas.StreamAbove + 1} {
		texts = append(texts, strings.Repeat("x", n))
	}
	return texts
}

func digestsOf(texts ...string) (ds []digest.Digest) {
	for _, text := range texts {
		ds = append(ds, digest.Of(digest.SHA256, []byte(text)))
	}
	return ds
}

// peersCase is a Fetch of texts, which storage has all.
type peersCase struct {
	storage heard
	farm    *servertest.Farm
	peers   *Fetcher
	texts   []string
}

func startPeers(t *testing.T, texts []string, near ...*peerFarm) *peersCase {
	t.Helper()
	c := &peersCase{texts: texts}
	c.farm = servertest.Start(t, servertest.Config{Unary: c.storage.unary, Stream: c.storage.stream})
	for _, text := range texts {
		c.farm.Put(t, digest.SHA256, []byte(text))
	}
	var list []*Peer
	for _, f := range near {
		list = append(list, f.peer)
	}
	c.peers = NewFetcher(client.New(c.farm.Conn, client.Options{NoCompression: true}), list, "main")
	return c
}

// fetch fetches everything. It fails unless fetched blobs came from peers and storage was asked for
// the rest.
func (c *peersCase) fetch(t *testing.T, fetched int) {
	t.Helper()
	before, _ := c.peers.FromPeers()
	c.storage.blobs = 0
	c.fetchAll(t)
	after, _ := c.peers.FromPeers()
	if got := int(after - before); got != fetched || c.storage.blobs != len(c.texts)-fetched {
		t.Errorf("%d blobs came from peers, want %d; storage was asked for %d of %d",
			got, fetched, c.storage.blobs, len(c.texts))
	}
}

func (c *peersCase) fetchAll(t *testing.T) {
	t.Helper()
	want := map[digest.Digest][]byte{}
	for i, d := range digestsOf(c.texts...) {
		want[d] = []byte(c.texts[i])
	}
	var sink servertest.Sink
	if err := c.peers.Fetch(t.Context(), digestsOf(c.texts...), sink.Take); err != nil {
		t.Fatal(err)
	}
	sink.Check(t, want)
}

func TestPeersGoBeforeStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		texts := peerTexts()
		c := startPeers(t, texts, startPeer(t, texts[1]), startPeer(t, texts...))
		c.fetch(t, len(texts))
		if blobs, size := c.peers.FromPeers(); blobs != 3 || size != 101+cas.StreamAbove+1 {
			t.Errorf("%d blobs, %d bytes", blobs, size)
		}
		// Large blobs, and blobs that no peer has, come from storage.
		large := strings.Repeat("x", maxBlobBytes+1)
		c = startPeers(t, append(texts, large), startPeer(t, texts[1], large))
		c.fetch(t, 1)
		// So are ranges.
		var tail bytes.Buffer
		if err := c.peers.FetchRange(t.Context(), digestsOf(large)[0], span.Span{From: maxBlobBytes, To: int64(len(large))}, &tail); err != nil || tail.String() != large[maxBlobBytes:] {
			t.Errorf("%d bytes, %v", tail.Len(), err)
		}
	})
}

// A peer that fails, sends wrong bytes or is slow affects only where blobs come from, and is not
// asked again at once.
func TestBadPeers(t *testing.T) {
	texts := peerTexts()
	unavailable := status.Error(codes.Unavailable, "as the test wants")
	for what, spoil := range map[string]func(f *peerFarm){
		"fails":   func(f *peerFarm) { f.fails = unavailable },
		"is away": func(f *peerFarm) { _ = f.Conn.Close() },
		"lies": func(f *peerFarm) {
			f.garble = true
			f.answer = func(_ context.Context, call func() (any, error)) (any, error) {
				answer, err := call()
				for _, r := range answer.(*repb.BatchReadBlobsResponse).GetResponses() {
					r.Data = append(r.Data[:len(r.Data)-1], '?')
				}
				return answer, err
			}
		},
		"sends what nobody wants": func(f *peerFarm) {
			f.garble = true
			f.answer = func(_ context.Context, call func() (any, error)) (any, error) {
				answer, err := call()
				for _, r := range answer.(*repb.BatchReadBlobsResponse).GetResponses() {
					r.Data = append(r.Data, make([]byte, 1<<20)...)
				}
				return answer, err
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bad, good := startPeer(t, texts...), startPeer(t, texts[:2]...)
				spoil(bad)
				c := startPeers(t, texts, bad, good)
				began := time.Now()
				c.fetch(t, 2)
				synctest.Wait() // others may have sent everything before it was asked
				asked := bad.asked.Load()
				c.fetch(t, 2)
				synctest.Wait()
				if bad.asked.Load() != asked {
					t.Error("it was asked again at once")
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("it cost %s", took)
				}
				time.Sleep(longestRest)
				c.fetchAll(t)
				if what != "is away" && bad.asked.Load() == asked {
					t.Error("it was never asked again")
				}
			})
		})
	}
}

func TestSlowPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow, good := startPeer(t, "a", "b"), startPeer(t, "a", "b")
		slow.answer = func(ctx context.Context, _ func() (any, error)) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		c := startPeers(t, []string{"a", "b"}, slow, good)
		began := time.Now()
		c.fetch(t, 0)
		if took := time.Since(began); took != headStart(2) {
			t.Errorf("it cost %s, want %s", took, headStart(2))
		}
		c.fetch(t, 2)
		// The longer it is slow, the longer it is left alone.
		rests := 0
		for range 60 {
			time.Sleep(time.Second)
			asked := slow.asked.Load()
			c.fetchAll(t)
			rests += int(slow.asked.Load() - asked)
		}
		if rests == 0 || rests > 7 {
			t.Errorf("it was asked %d times in a minute", rests)
		}
	})
}

// Storage that is slower than a peer is not waited for.
func TestPeersOvertakeStorage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := startPeer(t, "a", "b")
		near.answer = func(_ context.Context, call func() (any, error)) (any, error) {
			time.Sleep(time.Second)
			return call()
		}
		c := startPeers(t, []string{"a", "b"}, near)
		c.storage.gate = make(chan struct{})
		began := time.Now()
		c.fetchAll(t)
		if took := time.Since(began); took != time.Second {
			t.Errorf("took %s", took)
		}
		if blobs, _ := c.peers.FromPeers(); blobs != 2 || !near.peer.awake() {
			t.Errorf("%d blobs came from a peer, which is left alone: %t", blobs, !near.peer.awake())
		}
		close(c.storage.gate)
	})
}

// A peer that never has anything is hardly asked.
func TestPeersInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := startPeer(t)
		c := startPeers(t, []string{"a"}, near)
		for range 2 * maxInVain {
			c.fetch(t, 0)
		}
		if n := near.asked.Load(); n != maxInVain {
			t.Errorf("it was asked %d times, want %d", n, maxInVain)
		}
	})
}

// damagedOnce has the first stream of storage end within the blob because that is damaged.
type damagedOnce struct {
	grpc.ServerStream
	messages int
}

func (s *damagedOnce) SendMsg(m any) error {
	if s.messages++; s.messages > 1 {
		return status.Error(codes.DataLoss, "as the test wants")
	}
	return s.ServerStream.SendMsg(m)
}

// TestStorageIsAskedAgain: storage that ends a stream because its blob is damaged is asked again,
// even if there are peers.
func TestStorageIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := strings.Repeat("x", 2*cas.StreamAbove)
		var streams atomic.Int32
		f := servertest.Start(t, servertest.Config{
			Stream: func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, call grpc.StreamHandler) error {
				if streams.Add(1) == 1 {
					s = &damagedOnce{ServerStream: s}
				}
				return call(srv, s)
			},
		})
		d := f.Put(t, digest.SHA256, []byte(text))
		n := NewFetcher(client.New(f.Conn, client.Options{NoCompression: true}), []*Peer{startPeer(t).peer}, "main")
		var got []byte
		err := n.Fetch(t.Context(), []digest.Digest{d}, func(_ digest.Digest, r io.Reader) (err error) {
			got, err = io.ReadAll(r)
			return err
		})
		if err != nil || string(got) != text || streams.Load() != 2 {
			t.Errorf("%d bytes in %d streams, %v", len(got), streams.Load(), err)
		}
	})
}

// A blob that is missing everywhere and a blob that cannot be stored cause different errors.
func TestPeersAndErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near := startPeer(t, "a", "b")
		c := startPeers(t, []string{"b", "c"}, near)
		ds := digestsOf("a", "b", "c", "d")
		full := errors.New("disk is full")
		var came []digest.Digest
		var mu sync.Mutex
		take := func(fail digest.Digest) error {
			came = nil
			return c.peers.Fetch(t.Context(), ds, func(d digest.Digest, _ io.Reader) error {
				mu.Lock()
				defer mu.Unlock()
				if d == fail {
					return full
				}
				came = append(came, d)
				return nil
			})
		}
		var missing *cas.MissingError
		if err := take(digest.Digest{}); !errors.As(err, &missing) || len(missing.Digests) != 1 || missing.Digests[0] != ds[3] || len(came) != 3 {
			t.Errorf("%d came, %v", len(came), err)
		}
		for _, fail := range []digest.Digest{ds[0], ds[2]} { // from the peer, and from storage
			if err := take(fail); !errors.Is(err, full) || errors.Is(err, cas.ErrNotFound) || len(came) != 2 {
				t.Errorf("%d came, %v", len(came), err)
			}
			var named *cas.FetchError
			if err := take(fail); !errors.As(err, &named) || named.Blobs[ds[3]] != nil {
				t.Errorf("one that is nowhere: %v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.peers.Fetch(ctx, ds, nil); !errors.Is(err, context.Canceled) || !near.peer.awake() {
			t.Errorf("cancelled: %v", err)
		}
	})
}
