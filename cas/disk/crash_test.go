package disk

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

func TestStoreCleansUpAtTheStart(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	whole, cut, link := storePut(t, s, "whole"), storePut(t, s, "cut short"), storePut(t, s, "link")
	_ = s.Close()
	strange := filepath.Join(dir, "sha256", "00", "README")
	misplaced := filepath.Join(dir, "blake3", "00", filepath.Base(s.files.path(whole)))
	for _, err := range []error{
		os.WriteFile(filepath.Join(s.TempDir(), "incoming-1"), []byte("half a bl"), 0o444),
		os.MkdirAll(filepath.Join(s.TempDir(), "folder", "folder"), 0o700),
		os.Truncate(s.files.path(cut), 3),
		os.Remove(s.files.path(link)),
		os.Symlink("/etc/passwd", s.files.path(link)),
		os.MkdirAll(filepath.Dir(strange), 0o700),
		os.WriteFile(strange, nil, 0o644),
		os.MkdirAll(filepath.Dir(misplaced), 0o700),
		os.WriteFile(misplaced, []byte("whole"), 0o644),
		os.WriteFile(filepath.Join(dir, "sha256", "README"), nil, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s = storeOpen(t, dir, Options{})
	if names := storeTempFiles(t, s); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
	if storeText(s, whole) != "whole" || s.Contains(cut) || s.Contains(link) || s.Stats().Blobs != 1 {
		t.Errorf("there: %q, %t, %t, %+v", storeText(s, whole), s.Contains(cut), s.Contains(link), s.Stats())
	}
	if _, err := os.Lstat(s.files.path(cut)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged file: %v", err)
	}
	if _, err := os.Lstat(strange); err != nil {
		t.Errorf("a stranger's file was touched: %v", err)
	}
}

// TestStoreAfterALossOfPower: a file may have its size and not its bytes then.
func TestStoreAfterALossOfPower(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	right, zeros, older := storePut(t, s, "right"), storePut(t, s, "zeros"), storePut(t, s, "older")
	_ = s.Close()
	lastYear := time.Now().AddDate(-1, 0, 0)
	for _, err := range []error{
		os.Remove(s.files.path(zeros)),
		os.WriteFile(s.files.path(zeros), make([]byte, zeros.SizeBytes()), 0o444),
		os.Chtimes(s.files.path(older), lastYear, lastYear),
		os.WriteFile(filepath.Join(dir, "lock"), []byte("another start of the machine"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s = storeOpen(t, dir, Options{})
	if storeText(s, right) != "right" || storeText(s, older) != "older" || s.Contains(zeros) || s.Stats().Bytes != 10 {
		t.Errorf("there: %q, %q, %t, %+v", storeText(s, right), storeText(s, older), s.Contains(zeros), s.Stats())
	}
	if _, err := os.Lstat(s.files.path(zeros)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the damaged file: %v", err)
	}
	if !s.files.SameBoot() {
		t.Error("it will be looked at again without need")
	}
	storeWantConsistent(t, s)
}

// TestLossOfPowerWithAWrongClock: the files that were written last are checked even if other files
// have times ahead of the clock.
func TestLossOfPowerWithAWrongClock(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		last, other time.Duration // from now
		otherLooked bool
	}{
		"another one is ahead": {0, 365 * day, true},
		"it is ahead itself":   {time.Hour, 0, true},
		"both are":             {365 * day, 300 * day, false},
		"none is":              {-time.Hour, -day, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := storeOpen(t, dir, Options{})
			last, other := storePut(t, s, "last"), storePut(t, s, "other")
			errs := []error{s.Close(), os.WriteFile(filepath.Join(dir, "lock"), []byte("another start of the machine"), 0o600)}
			for d, at := range map[digest.Digest]time.Duration{last: c.last, other: c.other} {
				mtime := time.Now().Add(at)
				errs = append(errs, os.Remove(s.files.path(d)), os.WriteFile(s.files.path(d), make([]byte, d.SizeBytes()), 0o444),
					os.Chtimes(s.files.path(d), mtime, mtime))
			}
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			s = storeOpen(t, dir, Options{})
			if s.Has(last) || s.Has(other) == c.otherLooked {
				t.Errorf("there are zeros: %t, %t", s.Has(last), s.Has(other))
			}
		})
	}
}

const (
	storeCrashVar      = "FORERUNNER_STORE_CRASH_DIR"
	storeCrashMaxBytes = 4 << 20
)

// TestStoreSurvivesSIGKILL kills a process during writes, several times in the same folder, and
// checks the remains.
func TestStoreSurvivesSIGKILL(t *testing.T) {
	dir := t.TempDir()
	for round := range 5 {
		storeRunAndKill(t, dir, 50+round*37)
		s := storeOpen(t, filepath.Join(dir, "cas"), Options{MaxBytes: storeCrashMaxBytes})
		storeWantConsistent(t, s)
		if s.Stats().Blobs == 0 {
			t.Error("nothing survived")
		}
		for d := range s.files.index.entries {
			b, err := s.ReadBlob(context.Background(), d)
			if err != nil || digest.Of(d.Function(), b) != d {
				t.Errorf("blob %s: %d other bytes, %v", d, len(b), err)
			}
		}
		a := storeOpenActions(t, filepath.Join(dir, "ac"), 100)
		found := 0
		for n := range storeCrashActions {
			if got := storeExitCode(t, a, "", storeAction(n)); got == int32(n) {
				found++
			} else if got != -1 {
				t.Errorf("action %d: exit code %d", n, got)
			}
		}
		if found == 0 {
			t.Error("no action result survived")
		}
		if err := errors.Join(s.Close(), a.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// storeRunAndKill starts the child and kills it after a number of writes.
func storeRunAndKill(t *testing.T, dir string, writes int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestStoreCrashChild$")
	child.Env = append(os.Environ(), storeCrashVar+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	seen := 0
	for seen < writes && lines.Scan() {
		seen++
	}
	_ = child.Process.Kill()
	_ = child.Wait()
	if seen < writes {
		t.Fatalf("the child ended after %d writes: %s", seen, child.ProcessState)
	}
}

const storeCrashActions = 200

// TestStoreCrashChild does nothing unless TestStoreSurvivesSIGKILL started it:
// then it writes until it is killed, a line per write.
func TestStoreCrashChild(t *testing.T) {
	dir := os.Getenv(storeCrashVar)
	if dir == "" {
		return
	}
	s := storeOpen(t, filepath.Join(dir, "cas"), Options{MaxBytes: storeCrashMaxBytes})
	a := storeOpenActions(t, filepath.Join(dir, "ac"), 100)
	failed := make(chan error)
	for hand := range 4 {
		go func() {
			for {
				if err := storeCrashWrite(s, a, hand); err != nil {
					failed <- err
				}
				_, _ = os.Stdout.WriteString("written\n")
			}
		}()
	}
	t.Fatal(<-failed)
}

// storeCrashWrite puts one blob, by bytes, by reader or by adoption, and a result.
func storeCrashWrite(s *Store, a *Actions, hand int) error {
	ctx := context.Background()
	b := bytes.Repeat(strconv.AppendUint(nil, rand.Uint64(), 16), 1+rand.IntN(20_000))
	fn := digest.Functions()[rand.IntN(2)]
	d := digest.Of(fn, b)
	var err error
	switch rand.IntN(3) {
	case 0:
		err = s.PutBytes(ctx, d, b)
	case 1:
		// Without WriterTo, so that it comes in pieces.
		err = s.Put(ctx, d, io.MultiReader(bytes.NewReader(b)))
	case 2:
		path := filepath.Join(s.TempDir(), fmt.Sprint("hand-", hand))
		if err = os.WriteFile(path, b, 0o644); err == nil {
			_, err = s.Take(ctx, path, fn)
		}
	}
	n := rand.IntN(storeCrashActions)
	return errors.Join(err, a.Put(ctx, "", storeAction(n), &repb.ActionResult{ExitCode: int32(n)}))
}

// storeTmpfs mounts a small file system.
func storeTmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		storeSkip(t, "cannot mount a tmpfs: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestStoreMakesRoomOnAFullDisk(t *testing.T) {
	ctx := context.Background()
	for options, write := range map[string]func(s *Store, d digest.Digest, b []byte) error{
		"size=1m": func(s *Store, d digest.Digest, b []byte) error { return s.PutBytes(ctx, d, b) },
		"size=2m": func(s *Store, d digest.Digest, b []byte) error { return s.Put(ctx, d, bytes.NewReader(b)) },
		"size=3m": func(s *Store, d digest.Digest, b []byte) error {
			path := filepath.Join(t.TempDir(), "file") // on another file system
			if err := os.WriteFile(path, b, 0o644); err != nil {
				return err
			}
			_, err := s.Take(ctx, path, d.Function())
			return err
		},
		"size=4m": func(s *Store, d digest.Digest, b []byte) error {
			w, err := s.Create(d)
			if err != nil {
				return err
			}
			if _, err = w.Write(b); err == nil {
				err = w.Keep(ctx)
			}
			if err != nil {
				w.Drop()
				return err
			}
			s.Release(d)
			return nil
		},
		"nr_inodes=320": func(s *Store, d digest.Digest, b []byte) error { return s.PutBytes(ctx, d, b) },
	} {
		t.Run(options, func(t *testing.T) {
			s := storeOpen(t, storeTmpfs(t, options), Options{MaxBytes: 1 << 40})
			var unpins []func()
			defer func() {
				for _, unpin := range unpins {
					unpin()
				}
			}()
			blobs, repeats := 40, 20<<10
			if strings.HasPrefix(options, "nr_inodes") {
				blobs, repeats = 400, 1
			}
			fill := func(seed byte) (int, error) {
				for i := range blobs {
					b := bytes.Repeat(fmt.Appendf(nil, "%c%07d", seed, i), repeats)
					d := digest.Of(digest.SHA256, b)
					if err := write(s, d, b); err != nil {
						return i, err
					}
					if seed == 'p' {
						unpin, _ := s.Pin(d)
						unpins = append(unpins, unpin)
					}
					if got, err := s.ReadBlob(ctx, d); err != nil || !bytes.Equal(got, b) {
						t.Errorf("blob %d: %d bytes, %v", i, len(got), err)
					}
				}
				return blobs, nil
			}
			if n, err := fill('a'); err != nil {
				t.Fatalf("after %d blobs: %v", n, err)
			}
			if s.Stats().EvictedBlobs == 0 {
				t.Error("the disk was never full")
			}
			if n, err := fill('p'); n < 3 || !errors.Is(err, cas.ErrNoSpace) || !errors.Is(err, unix.ENOSPC) {
				t.Errorf("with all pinned, after %d blobs: %v", n, err)
			}
			if names, reserved := storeTempFiles(t, s), storeReserved(s); len(names) > 0 || reserved != 0 {
				t.Errorf("left behind: %v, %d bytes", names, reserved)
			}
		})
	}
}

// BenchmarkOpenStore opens a store whose inodes are in the page cache. With a
// million blobs, on two busy cores and ext4, that took 2.1 to 2.8 s.
func BenchmarkOpenStore(b *testing.B) {
	const blobs = 20_000
	dir := b.TempDir()
	for i := range blobs {
		d := digest.Of(digest.SHA256, fmt.Append(nil, i))
		path := filepath.Join(dir, BlobPath(d))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, fmt.Append(nil, i), 0o444)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		s, err := Open(dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if got := s.Stats().Blobs; got != blobs {
			b.Fatalf("found %d blobs", got)
		}
		_ = s.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*blobs), "ns/blob")
}
