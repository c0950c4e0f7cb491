package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// storeWantAllRight hashes every blob of a store.
func storeWantAllRight(t *testing.T, s *Store) (blobs int) {
	t.Helper()
	for _, fn := range digest.Functions() {
		err := filepath.WalkDir(filepath.Join(s.Dir(), fn.String()), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			name, err := filepath.Rel(s.Dir(), path)
			if err != nil {
				return err
			}
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer file.Close()
			want, ok := ParseBlobPath(filepath.ToSlash(name))
			got, err := digest.OfReader(fn, file)
			if !ok || err != nil || got != want {
				t.Errorf("%s has the bytes of %s, %v", name, got, err)
			}
			blobs++
			return nil
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return blobs
}

// storeLateWriter compiles the program that changes files when it has ended.
func storeLateWriter(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		storeSkip(t, err.Error())
	}
	program := filepath.Join(t.TempDir(), "latewriter")
	out, err := exec.Command("gcc", "-Os", "-s", "-o", program, "testdata/latewriter.c").CombinedOutput()
	if err != nil {
		t.Fatalf("compile the late writer: %v\n%s", err, out)
	}
	return program
}

// TestTakeFromLateWriters: the outputs of an ended program continue to change, but blobs do not.
func TestTakeFromLateWriters(t *testing.T) {
	program := storeLateWriter(t)
	const files = 12
	for _, mode := range []string{"uring", "uring-buffered", "aio", "mapping", "splice"} {
		t.Run(mode, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			command := exec.Command(program, mode, fmt.Sprint(files))
			command.Dir = s.TempDir()
			out, err := command.CombinedOutput()
			if command.ProcessState.ExitCode() == 77 {
				storeSkip(t, string(out))
			}
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var originals []*os.File
			taken := map[digest.Digest]bool{}
			for i := range files {
				path := filepath.Join(s.TempDir(), fmt.Sprintf("out%d", i))
				fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0) // which keeps it from nothing
				if err != nil {
					t.Fatal(err)
				}
				originals = append(originals, os.NewFile(uintptr(fd), path))
				d, err := s.Take(t.Context(), path, digest.SHA256)
				if err != nil || !s.Contains(d) {
					t.Fatalf("%s: %v", d, err)
				}
				taken[d] = true
			}
			for _, file := range originals {
				storeAwaitWriters(t, file)
			}
			if n := storeWantAllRight(t, s); n != len(taken) {
				t.Errorf("%d blobs of %d contents", n, len(taken))
			}
		})
	}
}

// storeAwaitWriters waits until nothing has file, a descriptor of O_PATH, open for writing.
func storeAwaitWriters(t *testing.T, file *os.File) {
	t.Helper()
	again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := unix.FcntlInt(again.Fd(), unix.F_SETLEASE, unix.F_RDLCK)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(deadline) {
			t.Fatalf("the late writer does not end: %v", err)
		}
	}
}

// TestTakeMovesWhatNobodyHas: a file is moved if no process has it open, and copied otherwise.
func TestTakeMovesWhatNobodyHas(t *testing.T) {
	hold := func(flags int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			file, err := os.OpenFile(path, flags, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
		}
	}
	for name, c := range map[string]struct {
		hold  func(*testing.T, string)
		moved bool
	}{
		"nobody":             {func(*testing.T, string) {}, true},
		"to read":            {hold(os.O_RDONLY), false},
		"to write":           {hold(os.O_WRONLY), false},
		"to read and write":  {hold(os.O_RDWR), false},
		"an unopened handle": {hold(unix.O_PATH), true},
		"a mapping": {func(t *testing.T, path string) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			m, err := unix.Mmap(int(file.Fd()), 0, 4, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err := errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				copy(m, "EVIL")
				_ = unix.Munmap(m)
			})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			t.Cleanup(func() { storeWantAllRight(t, s) }) // after the cleanups of hold
			path := storeTempFile("text", 0o644)(t, s)
			was, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			c.hold(t, path)
			d, err := s.Take(t.Context(), path, digest.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			is, err := os.Stat(s.files.path(d))
			if err != nil || os.SameFile(was, is) != c.moved {
				t.Errorf("moved: %v, want %v; %v", !c.moved, c.moved, err)
			}
		})
	}
}

// A countingContext calls at with the number of times that its end was asked for.
type countingContext struct {
	context.Context
	asked atomic.Int64
	at    func(n int64)
}

func (c *countingContext) Err() error {
	n := c.asked.Add(1)
	if c.at != nil {
		c.at(n)
	}
	return c.Context.Err()
}

// TestTakeIsLeftByAnOpener: a process that opens the file during the hash waits for it. The process
// must survive, and the blob must be another file.
func TestTakeIsLeftByAnOpener(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	path := storeTempFile(strings.Repeat("text", 1<<20), 0o644)(t, s)
	var waiter sync.WaitGroup
	ctx := &countingContext{Context: t.Context()}
	ctx.at = func(n int64) {
		if n != 5 {
			return
		}
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			t.Error("it was opened for writing while it was hashed")
			_ = unix.Close(fd)
		} else if !errors.Is(err, unix.EAGAIN) {
			t.Errorf("nobody has a lease: %v", err)
		}
		waiter.Go(func() {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return // it was too late
			}
			_, _ = file.WriteAt([]byte("EVIL"), 4000)
			_ = file.Close()
		})
	}
	d, err := s.Take(ctx, path, digest.SHA256)
	waiter.Wait()
	if err != nil || d != digest.Of(digest.SHA256, []byte(strings.Repeat("text", 1<<20))) {
		// The waiting process may have written before the copy, which then has these bytes.
		t.Logf("it is %s, %v", d, err)
	}
	if n := storeWantAllRight(t, s); n != 1 || !s.Contains(d) {
		t.Errorf("%d blobs, %v", n, err)
	}
}

// TestTakeWhenTheLeaseIsBroken: another process opens the file for writing, during the hash and
// just before the move. The blob must become another file, and the file must never appear as a
// blob.
func TestTakeWhenTheLeaseIsBroken(t *testing.T) {
	open := func(t *testing.T, path string) {
		if fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err == nil {
			_ = unix.Close(fd)
			t.Error("it was opened for writing")
		} else if !errors.Is(err, unix.EAGAIN) {
			t.Errorf("nobody has a lease: %v", err)
		}
	}
	for when, shown := range map[string]uint64{"while it is hashed": 0, "before it moves": 1} {
		t.Run(when, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			path := storeTempFile(strings.Repeat("text", 1<<20), 0o644)(t, s)
			before, err := tamper.StatOf(path)
			if err != nil {
				t.Fatal(err)
			}
			ctx := &countingContext{Context: t.Context()}
			if shown == 0 {
				ctx.at = func(n int64) {
					if n == 5 {
						open(t, path)
					}
				}
			} else {
				atTheMove(s, func() { open(t, path) })
			}
			d, err := s.Take(ctx, path, digest.SHA256)
			if err != nil {
				t.Fatal(err)
			}
			if after, err := tamper.StatOf(s.files.path(d)); err != nil || after.Ino == before.Ino {
				t.Errorf("the blob is the file that others wait for: %v", err)
			}
			if got := s.files.count(damaged); got != shown {
				t.Errorf("%d blobs were shown and taken away again, want %d", got, shown)
			}
			evictAll(t, s, d) // unpinned
		})
	}
}

// TestTakeOfWhatIsReplaced: others put another file in the place of the hashed one before it moves.
// The blob is not vouched for: readers find that it is wrong.
func TestTakeOfWhatIsReplaced(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	path := storeTempFile("right", 0o644)(t, s)
	wrong := filepath.Join(s.TempDir(), "wrong")
	if err := os.WriteFile(wrong, []byte("wrong"), 0o644); err != nil {
		t.Fatal(err)
	}
	atTheMove(s, func() {
		if err := os.Rename(wrong, path); err != nil {
			t.Error(err)
		}
	})
	d, err := s.Take(t.Context(), path, digest.SHA256)
	if want := digest.Of(digest.SHA256, []byte("right")); err != nil || d != want {
		t.Fatalf("it is %s, %v", d, err)
	}
	v := using(t, s, d)
	wantDamaged(t, v.Wait(t.Context()), d)
	if sound, err := s.verifier.ContainsSound(t.Context(), d); sound || err != nil {
		t.Errorf("the store has it: %v, %v", sound, err)
	}
	if got := s.Stats().PinnedBytes; got != 0 {
		t.Errorf("%d bytes are pinned", got)
	}
}

// atTheMove calls f, once, when a file has been looked at for the last time before it is moved to
// its place.
func atTheMove(s *Store, f func()) {
	path, once := s.files.layout.path, sync.Once{}
	s.files.layout.path = func(d digest.Digest) string {
		once.Do(f)
		return path(d)
	}
}

// TestTakeWhileOthersOpen has other processes open files again and again while these become blobs,
// and write to them.
func TestTakeWhileOthersOpen(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	got := 0
	for i := range 200 {
		path := filepath.Join(s.TempDir(), "file")
		if err := os.WriteFile(path, fmt.Appendf(nil, "%300000d", i), 0o644); err != nil {
			t.Fatal(err)
		}
		var opened []*os.File
		var opener sync.WaitGroup
		started := make(chan struct{})
		opener.Go(func() {
			for n := 0; ; n++ {
				file, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
				if n == 0 && i%2 == 0 {
					close(started)
				}
				switch {
				case err == nil && n > i%7:
					opened = append(opened, file)
					return
				case err == nil:
					_ = file.Close()
				case errors.Is(err, fs.ErrNotExist):
					return
				}
			}
		})
		if i%2 == 0 {
			<-started
		}
		_, err := s.Take(t.Context(), path, digest.SHA256)
		opener.Wait()
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range opened {
			got++
			_, err := file.WriteAt([]byte("EVIL"), 5)
			if err := errors.Join(err, file.Close()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := storeWantAllRight(t, s); n == 0 || got == 0 {
		t.Errorf("%d blobs, %d files were opened in time", n, got)
	}
}

// TestTakeEndsWithItsContext: a file takes an hour to hash. Take must return when its context ends.
func TestTakeEndsWithItsContext(t *testing.T) {
	for name, take := range storeTakes {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 60})
			path := storeSparseFile(t, s)
			inner, cancel := context.WithCancelCause(t.Context())
			ctx, enough := &countingContext{Context: inner}, errors.New("enough")
			ctx.at = func(n int64) {
				if n == 20 {
					cancel(enough)
				}
			}
			if _, err := take(ctx, s, path); !errors.Is(err, enough) {
				t.Errorf("error %v", err)
			}
			if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
			if got := s.Stats(); got.Bytes != 0 || s.files.index.reserved != 0 {
				t.Errorf("the store has %+v, %d bytes reserved", got, s.files.index.reserved)
			}
			if left, err := os.ReadDir(s.TempDir()); err != nil || len(left) != 1 {
				t.Errorf("there are %v, %v", left, err)
			}
		})
	}
}

// TestTakeRefusesWhatIsTooLarge: at once, before anything is read.
func TestTakeRefusesWhatIsTooLarge(t *testing.T) {
	for name, take := range storeTakes {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 30})
			ctx := &countingContext{Context: t.Context()}
			if _, err := take(ctx, s, storeSparseFile(t, s)); !errors.Is(err, cas.ErrNoSpace) {
				t.Errorf("error %v", err)
			}
			if n := ctx.asked.Load(); n > 2 {
				t.Errorf("it was at work for %d pieces", n)
			}
		})
	}
}

var storeTakes = map[string]func(context.Context, *Store, string) (digest.Digest, error){
	"move": func(ctx context.Context, s *Store, path string) (digest.Digest, error) {
		return s.Take(ctx, path, digest.SHA256)
	},
	"copy": func(ctx context.Context, s *Store, path string) (digest.Digest, error) {
		file, err := os.Open(path)
		if err != nil {
			return digest.Digest{}, err
		}
		defer file.Close()
		return s.TakeCopy(ctx, file, digest.SHA256)
	},
}

// storeSparseFile makes a file of 8 TiB that takes no room on the disk.
func storeSparseFile(t *testing.T, s *Store) string {
	t.Helper()
	path := storeTempFile("", 0o644)(t, s)
	if err := os.Truncate(path, 8<<40); err != nil {
		storeSkip(t, err.Error())
	}
	return path
}
