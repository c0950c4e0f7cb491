package server

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// cpuOf reports how much CPU time of all threads op takes for a GiB, when it handles n bytes.
func cpuOf(b *testing.B, n int64, op func() error) {
	b.SetBytes(n)
	before := cpuTime()
	for b.Loop() {
		if err := op(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuTime()-before).Seconds()/float64(b.N)/float64(n)*(1<<30), "cpu-s/GiB")
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkVerifyWhileStreaming compares reads of a blob of 64 MiB that is in the page
// cache: hashed only, copied, copied and hashed, and read by a ByteStream in memory without
// (from the second byte on) and with hashing.
func BenchmarkVerifyWhileStreaming(b *testing.B) {
	for _, fn := range digest.Functions() {
		f := netStart(b, netConfig{})
		data := netBytes(1, 64<<20)
		d := f.put(b, fn, data)
		n := d.SizeBytes()
		path := filepath.Join(f.store.Dir(), disk.BlobPath(d))
		b.Run(fn.String()+"/hash", func(b *testing.B) {
			cpuOf(b, n, func() error { digest.Of(fn, data); return nil })
		})
		for name, copied := range map[string]copier{
			"copy":      wire.CopyChunks,
			"copy+hash": func(w io.Writer, r io.Reader, _ int64) (int64, error) { return copySound(w, r, d) },
		} {
			b.Run(fn.String()+"/"+name, func(b *testing.B) {
				cpuOf(b, n, func() error {
					file, err := os.Open(path)
					if err != nil {
						return err
					}
					defer file.Close()
					_, err = copied(io.Discard, file, n)
					return err
				})
			})
		}
		for name, offset := range map[string]int64{"stream": 1, "stream+hash": 0} {
			b.Run(fn.String()+"/"+name, func(b *testing.B) {
				cpuOf(b, n, func() error {
					prefix := "blobs/"
					if fn == digest.BLAKE3 {
						prefix += "blake3/"
					}
					stream, err := f.streams.Read(b.Context(), &bytestream.ReadRequest{
						ResourceName: fmt.Sprintf("%s%s/%d", prefix, d.Hash(), n), ReadOffset: offset,
					})
					for err == nil {
						_, err = stream.Recv()
					}
					if err == io.EOF {
						return nil
					}
					return err
				})
			})
		}
	}
}

// BenchmarkSmallStreams writes and reads blobs of 4 KiB by ByteStream, each by a stream. The times
// include the client's.
func BenchmarkSmallStreams(b *testing.B) {
	f := netStart(b, netConfig{store: disk.Options{MakeFolders: true, Spread: true}})
	text := netBytes(1, 4<<10)
	var ds []digest.Digest
	measure := func(name string, op func(i int) error) {
		b.Run(name, func(b *testing.B) {
			before := cpuTime()
			for i := range b.N {
				if err := op(i); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-µs/blob")
		})
	}
	measure("write", func(int) error {
		copy(text, fmt.Append(nil, len(ds)))
		d := digest.Of(digest.SHA256, text)
		ds = append(ds, d)
		stream, err := f.streams.Write(b.Context())
		if err != nil {
			return err
		}
		err = stream.Send(&bytestream.WriteRequest{
			ResourceName: wire.Resource{UUID: netTestUUID, Digest: d}.String(),
			Data:         text, FinishWrite: true,
		})
		if err == nil {
			_, err = stream.CloseAndRecv()
		}
		return err
	})
	measure("read", func(i int) error {
		d := ds[i%len(ds)]
		got, err := f.read(b.Context(), &bytestream.ReadRequest{
			ResourceName: wire.Resource{Digest: d}.String(),
		})
		if err == nil && len(got) != len(text) {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}
