package fetch

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// BenchmarkColdRead reads a blob of 100 MiB that is not local, over an upstream
// that takes 10 ms for each call.
func BenchmarkColdRead(b *testing.B) {
	const trip = 10 * time.Millisecond
	data := servertest.Bytes(1, 100<<20)
	d := digest.Of(digest.SHA256, data)
	f := servertest.Start(b, servertest.Config{
		Unary: func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
			time.Sleep(trip)
			return call(ctx, r)
		},
		Stream: func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, call grpc.StreamHandler) error {
			time.Sleep(trip)
			return call(srv, s)
		},
	})
	f.Put(b, digest.SHA256, data)
	client := clientOf(f, client.Options{NoCompression: true})
	if _, err := client.FindMissing(b.Context(), []digest.Digest{d}); err != nil {
		b.Fatal(err) // so that the capabilities are known
	}
	p := make([]byte, 4096)
	for name, off := range map[string]int64{"first byte": 0, "last byte": d.SizeBytes() - 4096} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				a := benchOpen(b, f, client, d)
				if _, err := a.ReadAt(b.Context(), p, off); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				a.Close()
				b.StartTimer()
			}
		})
	}
	b.Run("all as it arrives", func(b *testing.B) {
		for range b.N {
			a := benchOpen(b, f, client, d)
			r := io.NewSectionReader(storeReaderAt{b.Context(), a}, 0, d.SizeBytes())
			if n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, make([]byte, 128<<10)); n != d.SizeBytes() || err != nil {
				b.Fatal(n, err)
			}
			if err := a.Wait(b.Context()); err != nil {
				b.Fatal(err)
			}
			a.Close()
		}
	})
	b.Run("all before the first byte", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			s := storeOpen(b, b.TempDir(), storeOptions{ArriveAbove: 1 << 40})
			b.StartTimer()
			file, err := s.Through(client).OpenBlob(b.Context(), d)
			if err != nil {
				b.Fatal(err)
			}
			_ = file.Close()
		}
	})
}

func benchOpen(b *testing.B, f *servertest.Farm, client *client.Client, d digest.Digest) *Arrival {
	b.Helper()
	b.StopTimer()
	s := storeOpen(b, b.TempDir(), storeOptions{})
	b.StartTimer()
	_, a, _, err := s.Through(client).OpenArriving(b.Context(), d)
	if a == nil || err != nil {
		b.Fatal(fmt.Errorf("not arriving: %w", err))
	}
	return a
}
