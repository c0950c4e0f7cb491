package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// BenchmarkTake makes blobs of an action's outputs: a thousand small files, and a large one, which
// no process has open.
func BenchmarkTake(b *testing.B) {
	for _, c := range []struct {
		name        string
		files, size int
	}{{"1000 of 4 KiB", 1000, 4 << 10}, {"1000 of 64 KiB", 1000, 64 << 10}, {"1 of 256 MiB", 1, 256 << 20}} {
		for name, take := range benchTakes {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				s, err := Open(b.TempDir(), Options{MaxBytes: 4 << 30})
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				content, serial := make([]byte, c.size), 0
				b.SetBytes(int64(c.files * c.size))
				var cpu time.Duration
				for b.Loop() {
					b.StopTimer()
					paths := make([]string, c.files)
					for i := range paths {
						serial++
						copy(content, fmt.Append(nil, serial))
						paths[i] = filepath.Join(s.TempDir(), fmt.Sprintf("out%d", i))
						if err := os.WriteFile(paths[i], content, 0o644); err != nil {
							b.Fatal(err)
						}
					}
					before := benchCPU(b)
					b.StartTimer()
					for _, path := range paths {
						if err := take(b.Context(), s, path); err != nil {
							b.Fatal(err)
						}
					}
					cpu += benchCPU(b) - before
				}
				b.ReportMetric(float64(cpu.Microseconds())/float64(b.N*c.files), "cpu-µs/file")
			})
		}
	}
}

// benchCPU is the CPU time of this process, which a busy machine does not change.
func benchCPU(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var benchTakes = map[string]func(context.Context, *Store, string) error{
	"move": func(ctx context.Context, s *Store, path string) error {
		_, err := s.Take(ctx, path, digest.SHA256)
		return err
	},
	"copy": func(ctx context.Context, s *Store, path string) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = s.TakeCopy(ctx, f, digest.SHA256)
		return err
	},
}
