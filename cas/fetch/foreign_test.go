package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// A foreign storage does not do all that REv2 says.
type foreign struct {
	request func(*bytestream.ReadRequest) error  // changes or refuses it
	answer  func(*bytestream.ReadResponse) error // changes it; io.EOF ends the stream
	wrong   bool                                 // bytes are wrong
	fails   bool                                 // blobs cannot be had
}

// A foreignStream is a stream of reads of a foreign storage.
type foreignStream struct {
	grpc.ServerStream
	foreign
	over bool
}

func (s *foreignStream) RecvMsg(m any) error {
	err := s.ServerStream.RecvMsg(m)
	if err == nil && s.request != nil {
		err = s.request(m.(*bytestream.ReadRequest))
	}
	return err
}

func (s *foreignStream) SendMsg(m any) error {
	r, ok := m.(*bytestream.ReadResponse)
	if s.over {
		return nil
	}
	if ok && s.answer != nil {
		r.Data = bytes.Clone(r.Data)
		switch err := s.answer(r); err {
		case nil:
		case io.EOF:
			s.over = true
		default:
			return err
		}
	}
	return s.ServerStream.SendMsg(m)
}

// foreigners returns foreign storages by what they do; each stream has one of its own.
func foreigners() map[string]func() foreign {
	return map[string]func() foreign{
		"honest": func() foreign { return foreign{} },
		"ignores the limit": func() foreign {
			return foreign{request: func(r *bytestream.ReadRequest) error { r.ReadLimit = 0; return nil }}
		},
		"refuses a limit": func() foreign {
			return foreign{request: func(r *bytestream.ReadRequest) error {
				if r.ReadLimit != 0 {
					return status.Error(codes.Unimplemented, "no limits")
				}
				return nil
			}}
		},
		"refuses offsets": func() foreign {
			return foreign{request: func(r *bytestream.ReadRequest) error {
				if r.ReadOffset != 0 {
					return status.Error(codes.InvalidArgument, "no offsets")
				}
				return nil
			}}
		},
		"ends early": func() foreign {
			n := 0
			return foreign{fails: true, answer: func(*bytestream.ReadResponse) error {
				if n++; n == 3 {
					return io.EOF
				}
				return nil
			}}
		},
		"sends more": func() foreign {
			return foreign{request: func(r *bytestream.ReadRequest) error {
				if r.ReadLimit > 0 {
					r.ReadLimit += 100_000
				}
				return nil
			}}
		},
		"wrong offset": func() foreign {
			return foreign{wrong: true, request: func(r *bytestream.ReadRequest) error {
				if r.ReadOffset > 0 {
					r.ReadOffset--
				}
				return nil
			}}
		},
		"wrong bytes at holes": func() foreign {
			at := int64(0)
			return foreign{
				wrong: true, request: func(r *bytestream.ReadRequest) error { at = r.ReadOffset; return nil },
				answer: func(r *bytestream.ReadResponse) error {
					if at > 0 && len(r.Data) > 0 {
						r.Data[0] ^= 1
					}
					return nil
				},
			}
		},
		"breaks": func() foreign {
			n := 0
			return foreign{answer: func(*bytestream.ReadResponse) error {
				if n++; n == 5 {
					return status.Error(codes.Unavailable, "broken")
				}
				return nil
			}}
		},
		"slow": func() foreign {
			return foreign{answer: func(*bytestream.ReadResponse) error { time.Sleep(2 * time.Millisecond); return nil }}
		},
	}
}

// TestForeign: readers of a large blob, some of which leave, get right bytes or an error, and a wrong
// blob is never kept, whatever the storage does with offsets and limits.
func TestForeign(t *testing.T) {
	const size = 3 << 20
	data := servertest.Bytes(11, size)
	for name, make := range foreigners() {
		for _, compress := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/zstd %t", name, compress), func(t *testing.T) {
				random := rand.New(rand.NewPCG(0, 9))
				about := make()
				f := servertest.Start(t, servertest.Config{Stream: func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, call grpc.StreamHandler) error {
					if filepath.Base(info.FullMethod) != "Read" {
						return call(srv, s)
					}
					return call(srv, &foreignStream{ServerStream: s, foreign: make()})
				}})
				d := f.Put(t, digest.SHA256, data)
				s := storeOpen(t, t.TempDir(), storeOptions{ArriveAbove: 2 << 20})
				u := clientOf(f, client.Options{NoCompression: !compress, RetryFor: 2 * time.Second, MaxConcurrent: 4})
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				var parts []span.Span
				for range random.IntN(5) {
					from := random.Int64N(size)
					parts = append(parts, span.Span{From: from, To: from + random.Int64N(1<<20)})
				}
				release := s.Through(u).PrefetchRanges(ctx, d, parts)
				if random.IntN(2) == 0 {
					time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
				}
				var readers sync.WaitGroup
				for range 3 {
					reader := foreignReader{about: about, data: data, digest: d, random: rand.New(rand.NewPCG(random.Uint64(), 1))}
					readers.Go(func() { reader.read(ctx, t, s.Through(u)) })
				}
				readers.Wait()
				release()
				if b, err := s.ReadBlob(ctx, d); err == nil && !bytes.Equal(b, data) {
					t.Error("the store has a wrong blob")
				}
				b, err := s.Through(u).ReadBlob(ctx, d)
				if err == nil && !bytes.Equal(b, data) {
					t.Error("a wrong blob is served")
				}
				if err != nil && !about.fails {
					t.Errorf("afterwards: %v", err)
				}
				storeWantConsistent(t, s)
			})
		}
	}
}

// A foreignReader reads some parts of a blob, and waits for it or leaves.
type foreignReader struct {
	about  foreign
	data   []byte
	digest digest.Digest
	random *rand.Rand
}

func (r *foreignReader) read(ctx context.Context, t *testing.T, from *ReadThrough) {
	fine := !r.about.wrong && !r.about.fails
	file, a, _, err := from.OpenArriving(ctx, r.digest)
	switch {
	case err != nil:
		if fine {
			t.Error(err)
		}
		return
	case file != nil:
		file.Close()
		return
	}
	defer a.Close()
	for range 3 + r.random.IntN(4) {
		p := make([]byte, 1+r.random.IntN(300_000))
		off := r.random.Int64N(int64(len(r.data)))
		ctx, cancel := context.WithCancel(ctx)
		if r.random.IntN(4) == 0 {
			time.AfterFunc(time.Duration(r.random.IntN(5))*time.Millisecond, cancel)
		}
		got, err := a.ReadAt(ctx, p, off)
		cancel()
		if (err == nil || err == io.EOF) && !r.about.wrong && !bytes.Equal(p[:got], r.data[off:off+int64(got)]) {
			t.Errorf("wrong bytes at %d", off)
		}
		if err != nil && err != io.EOF && !errors.Is(err, context.Canceled) && fine {
			t.Errorf("read at %d: %v", off, err)
		}
	}
	if r.random.IntN(3) == 0 {
		return
	}
	err = a.Wait(ctx)
	if ctx.Err() != nil {
		t.Error("it does not end")
	}
	if err != nil && (fine || r.about.wrong && !errors.Is(err, cas.ErrCorrupt)) {
		t.Errorf("wait: %v", err)
	}
}
