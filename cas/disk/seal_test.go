package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// strangers open a file that is being written, as root may.
var strangers = map[string]func(path string) error{
	"write": func(path string) error {
		return openAs(path, unix.O_WRONLY)
	},
	"read": func(path string) error { return openAs(path, unix.O_RDONLY) },
	"descriptor": func(path string) error {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return err
		}
		for _, e := range entries {
			fd := "/proc/self/fd/" + e.Name()
			if to, err := os.Readlink(fd); err == nil && to == path {
				return openAs(fd, unix.O_WRONLY)
			}
		}
		return errors.New("it is not open")
	},
}

func openAs(path string, how int) error {
	fd, err := unix.Open(path, how|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// arrivals bring a blob in two parts.
var arrivals = map[string]func(s *Store, d digest.Digest, b []byte, between func(path string)) error{
	"stream": func(s *Store, d digest.Digest, b []byte, between func(string)) error {
		w, err := newSpaceWriter(s.files, d)
		if err == nil {
			_, err = w.Write(b[:1])
		}
		if err == nil {
			between(w.file.Name())
			_, err = w.Write(b[1:])
		}
		if err == nil {
			err = w.Keep(context.Background())
		}
		return err
	},
	"in any order": func(s *Store, d digest.Digest, b []byte, between func(string)) error {
		in := s.Receive(d).(*incoming)
		_, err := in.WriteAt(b[1:], 1)
		if err == nil {
			between(in.current().Name())
			_, err = in.WriteAt(b[:1], 0)
		}
		if err == nil {
			err = in.Keep(context.Background())
		}
		in.Close()
		return err
	},
}

// TestStrangersAtWhatArrives: a file that another process may have changed while it was written is
// not verified.
func TestStrangersAtWhatArrives(t *testing.T) {
	for way, arrive := range arrivals {
		for kind, visit := range strangers {
			t.Run(way+" "+kind, func(t *testing.T) {
				s := storeOpen(t, t.TempDir(), Options{})
				for i, visited := range []bool{false, true} {
					b := fmt.Append(nil, "content ", i)
					d := digest.Of(digest.SHA256, b)
					err := arrive(s, d, b, func(path string) {
						if visited {
							if err := visit(path); err != nil && !errors.Is(err, unix.EAGAIN) {
								t.Error(err)
							}
						}
					})
					if err != nil {
						t.Fatal(err)
					}
					if verified := IsVerified(s, d); verified == visited {
						t.Errorf("visited %v, vouched for %v", visited, verified)
					}
					v := s.verifier.Vouch()
					v.Used(d)
					wantVouched(t, v)
					v.Close()
				}
			})
		}
	}
}

// writeSealed writes a blob, and does not settle it yet. Without a lease it does so as on a file
// system that has none.
func writeSealed(t *testing.T, s *Store, leased bool) (digest.Digest, *spaceWriter, tamper.Seal) {
	t.Helper()
	b := []byte("content")
	d := digest.Of(digest.SHA256, b)
	w, err := newSpaceWriter(s.files, d)
	if err == nil {
		_, err = w.Write(b)
	}
	var sealed tamper.Seal
	if err == nil {
		if !leased {
			w.file.Free()
		}
		sealed, err = w.file.Seal()
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, w, sealed
}

// TestStrangersAtTheMove: a process that opens a file for writing between the check and the move is
// blocked and detected. A process that opened it just before is detected too, even if it restores
// the file's time. So is a process that replaces the file by another one with the same size and
// time.
func TestStrangersAtTheMove(t *testing.T) {
	const unopened = -1
	opens := func(how int) func(path string, _ *os.File) error {
		return func(path string, _ *os.File) error {
			if err := openAs(path, how); !errors.Is(err, unix.EAGAIN) {
				return fmt.Errorf("open: %w", err)
			}
			return nil
		}
	}
	replaces := func(path string, _ *os.File) error {
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		other := path + "-other"
		return errors.Join(os.WriteFile(other, []byte("CONTENT"), 0o444),
			os.Chtimes(other, info.ModTime(), info.ModTime()), os.Rename(other, path))
	}
	for name, c := range map[string]struct {
		leased bool
		early  int // how a process opens the file before the move
		visit  func(path string, early *os.File) error
	}{
		"opens it":  {false, os.O_RDONLY, opens(unix.O_WRONLY)},
		"opens it,": {true, unopened, opens(unix.O_WRONLY)},
		"reads it,": {true, unopened, opens(unix.O_RDONLY)},
		"has it open": {false, os.O_RDWR, func(path string, early *os.File) error {
			info, err := early.Stat()
			if err == nil {
				_, err = early.WriteAt([]byte("CONTENT"), 0)
			}
			if err != nil {
				return err
			}
			return os.Chtimes(path, info.ModTime(), info.ModTime())
		}},
		"replaces it":  {false, os.O_RDONLY, replaces},
		"replaces it,": {true, unopened, replaces},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d, w, sealed := writeSealed(t, s, c.leased)
			var early *os.File
			if c.early != unopened {
				var err error
				if early, err = os.OpenFile(w.file.Name(), c.early, 0); err != nil {
					t.Fatal(err)
				}
				defer early.Close()
			}
			var visited error
			atTheMove(s, func() { visited = c.visit(w.file.Name(), early) })
			err := s.files.settle(t.Context(), d, arrival{from: w.file.Name(), seal: &sealed})
			if err := errors.Join(err, visited); err != nil {
				t.Fatal(err)
			}
			if IsVerified(s, d) {
				t.Error("it is vouched for")
			}
		})
	}
}

// TestStrangersAtTheLastMoment changes a file between its last byte and its place.
func TestStrangersAtTheLastMoment(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d, w, sealed := writeSealed(t, s, false)
	rotFile(t, w.file.Name())
	if err := s.files.settle(t.Context(), d, arrival{from: w.file.Name(), seal: &sealed}); err != nil {
		t.Fatal(err)
	}
	if IsVerified(s, d) {
		t.Error("it is vouched for")
	}
	v := using(t, s, d)
	wantDamaged(t, v.Wait(t.Context()), d)
	if err := s.verifier.Verify(t.Context(), d); !errors.Is(err, cas.ErrNotFound) {
		t.Error(err)
	}
}

// TestWrittenBlobsAreClosed: nothing has the file of a written blob open, which could not be
// executed otherwise. This is so, too, if another caller has stored the blob meanwhile.
func TestWrittenBlobsAreClosed(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	b := []byte("content")
	d := digest.Of(digest.SHA256, b)
	var writers []*spaceWriter
	for range 2 {
		w, err := newSpaceWriter(s.files, d)
		if err == nil {
			_, err = w.Write(b)
		}
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	for i, w := range writers {
		if err := w.Keep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := w.file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	file, err := s.OpenBlob(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, ok := tamper.LeaseOf(file); !ok {
		t.Error("something has it open")
	}
}

// BenchmarkPutBytes stores small blobs, as a client uploads them.
func BenchmarkPutBytes(b *testing.B) {
	s := storeOpen(b, b.TempDir(), Options{MakeFolders: true, Spread: true})
	text := make([]byte, 4<<10)
	before := benchCPU(b)
	b.ResetTimer()
	for i := range b.N {
		copy(text, fmt.Append(nil, i))
		if err := s.PutBytes(b.Context(), digest.Of(digest.SHA256, text), text); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((benchCPU(b)-before).Microseconds())/float64(b.N), "cpu-µs/blob")
}
