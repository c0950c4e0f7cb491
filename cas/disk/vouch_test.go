package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/aside"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// rot changes one byte of the file of d in its place, as a disk or a stranger would,
// with the same size and modification time.
func rot(t testing.TB, s *Store, d digest.Digest) {
	t.Helper()
	rotFile(t, s.files.path(d))
}

func rotFile(t testing.TB, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err == nil {
		b[len(b)/2] ^= 1
		err = os.Chmod(path, 0o644)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0)
	}
	if err == nil {
		err = errors.Join(os.Chtimes(path, info.ModTime(), info.ModTime()), os.Chmod(path, 0o444))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// forget has the store not know any more that d was verified.
func forget(t testing.TB, s *Store, d digest.Digest) {
	t.Helper()
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.index.lookup(d).proof = proof{}
}

// rotSilently changes a byte in a way that the mark does not show, as only a disk does.
func rotSilently(t testing.TB, s *Store, d digest.Digest) {
	t.Helper()
	rot(t, s, d)
	m, err := tamper.MarkOf(s.files.path(d))
	if err != nil {
		t.Fatal(err)
	}
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.index.lookup(d).proof.mark = m
}

// wantDamaged fails unless err names just ds as damaged.
func wantDamaged(t testing.TB, err error, ds ...digest.Digest) {
	t.Helper()
	var damaged *cas.DamagedError
	if !errors.As(err, &damaged) || !errors.Is(err, cas.ErrCorrupt) || len(damaged.Digests) != len(ds) {
		t.Fatalf("%v, want %d damaged", err, len(ds))
	}
	for i, d := range ds {
		if damaged.Digests[i] != d {
			t.Errorf("damaged is %s, want %s", damaged.Digests[i], d)
		}
	}
}

func wantVouched(t testing.TB, v *Vouching) {
	t.Helper()
	if err := v.Wait(t.Context()); err != nil {
		t.Errorf("not vouched for: %v", err)
	}
}

func TestVouchingNoticesWhatChangesWhileTheStoreIsOpen(t *testing.T) {
	other := strings.Repeat("other ", 1000)
	for what, change := range map[string]func(t *testing.T, s *Store, d digest.Digest){
		"a byte": func(t *testing.T, s *Store, d digest.Digest) { rot(t, s, d) },
		"of old, silently": func(t *testing.T, s *Store, d digest.Digest) {
			rotSilently(t, s, d)
			forget(t, s, d)
		},
		"truncated": func(t *testing.T, s *Store, d digest.Digest) {
			if err := os.Truncate(s.files.path(d), 17); err != nil {
				t.Fatal(err)
			}
		},
		"swapped": func(t *testing.T, s *Store, d digest.Digest) {
			o := storePut(t, s, other)
			if err := os.Rename(s.files.path(o), s.files.path(d)); err != nil {
				t.Fatal(err)
			}
		},
		"removed": func(t *testing.T, s *Store, d digest.Digest) {
			if err := os.Remove(s.files.path(d)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for _, every := range []time.Duration{0, -1} {
			t.Run(fmt.Sprint(what, every), func(t *testing.T) {
				s := storeOpen(t, t.TempDir(), Options{VerifyEvery: every})
				text := strings.Repeat("right ", 1000)
				d, fine := storePut(t, s, text), storePut(t, s, "fine")
				v := s.verifier.Vouch()
				defer v.Close()
				v.Used(fine)
				v.Used(d)
				wantVouched(t, v)
				change(t, s, d)
				wantDamaged(t, v.Wait(t.Context()), d)
				if s.Contains(d) || !s.Contains(fine) {
					t.Error("it is there still, or what is fine is not")
				}
				storePut(t, s, text)
				// It was used all the same.
				wantDamaged(t, v.Wait(t.Context()), d)
				again := s.verifier.Vouch()
				defer again.Close()
				again.Used(d)
				wantVouched(t, again)
			})
		}
	}
}

func TestVouchingOfWhatWasFoundAtTheStart(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	fine, rotten := storePut(t, s, "fine"), storePut(t, s, "rotten")
	unused := storePut(t, s, "unused")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "verified")); err != nil {
		t.Fatal(err)
	}
	rotFile(t, filepath.Join(dir, BlobPath(rotten)))
	rotFile(t, filepath.Join(dir, BlobPath(unused)))
	s = storeOpen(t, dir, Options{})
	v, w := s.verifier.Vouch(), s.verifier.Vouch()
	defer v.Close()
	defer w.Close()
	for _, v := range []*Vouching{v, w} {
		v.Used(fine)
		v.Used(rotten)
	}
	wantDamaged(t, v.Wait(t.Context()), rotten)
	wantDamaged(t, w.Wait(t.Context()), rotten)
	if got := s.Stats(); got.VerifiedBlobs != 2 || got.DamagedBlobs != 1 || got.AsideBlobs != 1 || got.Blobs != 2 {
		t.Errorf("each is to be verified once: %+v", got)
	}
	if s.files.index.pinned != 0 {
		t.Errorf("%d bytes are pinned", s.files.index.pinned)
	}
}

// TestVouchingOfWhatIsRightAgain: nobody knows what was read while it was wrong. Who uses it afterwards
// reads what is right.
func TestVouchingOfWhatIsRightAgain(t *testing.T) {
	for name, back := range map[string]func(path string){
		"written": func(path string) { rotFile(t, path) },
		"replaced": func(path string) {
			rotFile(t, path)
			if err := errors.Join(os.Rename(path, path+"~"), os.Rename(path+"~", path)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "right, wrong, right")
			v := s.verifier.Vouch()
			defer v.Close()
			v.Used(d)
			rot(t, s, d)
			back(s.files.path(d))
			wantDamaged(t, v.Wait(t.Context()), d)
			wantDamaged(t, v.Wait(t.Context()), d)
			later := s.verifier.Vouch()
			defer later.Close()
			later.Used(d)
			wantVouched(t, later)
			if !s.Contains(d) || s.Stats().DamagedBlobs != 0 {
				t.Errorf("what is right is gone: %+v", s.Stats())
			}
		})
	}
}

// TestVouchingIsNotMisledByTheStore, which notes uses in the times of files.
func TestVouchingIsNotMisledByTheStore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "used")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	s.files.mu.Lock()
	s.files.index.lookup(d).stamped -= 2 * stampEvery
	s.files.mu.Unlock()
	before, err1 := tamper.MarkOf(s.files.path(d))
	present := s.Contains(d)
	after, err2 := tamper.MarkOf(s.files.path(d))
	if err := errors.Join(err1, err2); err != nil || !present || before == after {
		t.Fatalf("the use was not noted: %v", err)
	}
	wantVouched(t, v)
}

// TestVerificationIsNotMisledByTheStore, which notes a use in the time of a file while that is being read, by one of
// two readers.
func TestVerificationIsNotMisledByTheStore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "used")
	age := func() {
		s.files.mu.Lock()
		defer s.files.mu.Unlock()
		e := s.files.index.lookup(d)
		e.stamped -= 2 * stampEvery
		e.proof.at -= 25 * 3600
	}
	age()
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	wantVouched(t, v)
	age()
	generation, _, _ := s.files.look(d)
	for range 2 {
		s.files.verify(d)
	}
	before, err := tamper.MarkOf(s.files.path(d))
	if err != nil || !s.Contains(d) {
		t.Fatalf("it is not there: %v", err)
	}
	for range 2 {
		s.files.prove(d, generation, provenAt(time.Now(), before))
		s.files.endVerify(d)
	}
	if len(s.files.verifying) > 0 || !s.verifier.unchanged(version{d, generation}) {
		t.Errorf("%d are being verified; the blob has changed: %t", len(s.files.verifying), !s.verifier.unchanged(version{d, generation}))
	}
	wantVouched(t, v)
}

// TestOldReaders: who read a file until now that was evicted or that the store has stamped meanwhile says nothing about
// the one that is there.
func TestOldReaders(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, s *Store, d digest.Digest){
		"came anew": func(t *testing.T, s *Store, d digest.Digest) {
			s.MakeRoom(1)
			if s.Has(d) {
				t.Fatal("it was not evicted")
			}
			storePut(t, s, "text")
		},
		"stamped": func(t *testing.T, s *Store, d digest.Digest) {
			s.files.mu.Lock()
			s.files.index.lookup(d).stamped -= 2 * stampEvery
			s.files.mu.Unlock()
			if !s.Contains(d) {
				t.Fatal("it is not there")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			s.files.mu.Lock()
			s.files.index.lookup(d).proof.at -= 2 * noteAgain
			s.files.mu.Unlock()
			file, err := s.Peek(func(digest.Digest) {}).OpenBlob(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			sound, err := s.verifier.Reading(d, file)
			if err != nil {
				t.Fatal(err)
			}
			meanwhile(t, s, d)
			v := s.verifier.Vouch()
			defer v.Close()
			v.Used(d)
			sound()
			wantVouched(t, v)
			if generation, _, _ := s.files.look(d); !s.verifier.unchanged(version{d, generation}) {
				t.Error("it has to be verified again")
			}
		})
	}
}

// TestVouchingOfWhatWasChangedAndEvicted: it is right when it goes, but nobody knows what was read of it.
func TestVouchingOfWhatWasChangedAndEvicted(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	d := storePut(t, s, "text")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	for _, text := range []string{"rot!", "text"} {
		file, err := os.OpenFile(s.files.path(d), os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(text)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		storePut(t, s, fmt.Sprintf("%04d", i))
	}
	if s.files.contains(d) {
		t.Fatal("it was not evicted")
	}
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestVouchingOfWhatCannotBeOpenedWhenItGoes: nobody knows what was read of a file that was changed.
func TestVouchingOfWhatCannotBeOpenedWhenItGoes(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	putSocket(t, s.files.path(d))
	s.MakeRoom(1)
	if s.Has(d) {
		t.Fatal("it was not evicted")
	}
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestStampOfWhatIsWrittenTo: the store changes the times of a file while a stranger may write to it. It does not take the stranger's
// change for its own.
func TestStampOfWhatIsWrittenTo(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	err := errors.Join(os.Chmod(s.files.path(d), 0o644), s.verifier.Verify(t.Context(), d))
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := os.OpenFile(s.files.path(d), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	generation, _, _ := s.files.look(d)
	for _, open := range []bool{true, false} {
		s.files.mu.Lock()
		s.files.index.lookup(d).stamped -= 2 * stampEvery
		s.files.mu.Unlock()
		if !s.Contains(d) {
			t.Fatal("it is not there")
		}
		if unchanged := s.verifier.unchanged(version{d, generation}); unchanged == open {
			t.Errorf("a stranger has it open: %t; it is believed to be unchanged: %t", open, unchanged)
		}
		if open {
			if err := stranger.Close(); err != nil {
				t.Fatal(err)
			}
			if err := s.verifier.Verify(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestStampOfWhatWasWrittenTo: that the store changes the times of a file does not hide that a stranger had changed it before.
func TestStampOfWhatWasWrittenTo(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	rot(t, s, d)
	s.files.mu.Lock()
	s.files.index.lookup(d).stamped -= 2 * stampEvery
	s.files.mu.Unlock()
	if !s.Contains(d) {
		t.Fatal("it is not there")
	}
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestStampThatNobodyCanVouchFor: a stranger had the file open while the store stamped it. What was read meanwhile nobody knows.
func TestStampThatNobodyCanVouchFor(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	if err := errors.Join(os.Chmod(s.files.path(d), 0o644), s.verifier.Verify(t.Context(), d)); err != nil {
		t.Fatal(err)
	}
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	stranger, err := os.OpenFile(s.files.path(d), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.files.mu.Lock()
	s.files.index.lookup(d).stamped -= 2 * stampEvery
	s.files.mu.Unlock()
	if !s.Contains(d) {
		t.Fatal("it is not there")
	}
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestStrangersOfOtherFiles: that somebody had changed the file of a blob is not said of the one that it has later, nor of
// who used it when that was over.
func TestStrangersOfOtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		gone, anew, used, changed bool // used: after somebody changed the file, and it was right again
		damaged                   bool
	}{
		"used afterwards":                {used: true},
		"used afterwards, changed again": {used: true, changed: true, damaged: true},
		"used afterwards, gone":          {used: true, gone: true},
		"used afterwards, came anew":     {used: true, gone: true, anew: true},
		"used before it came":            {changed: true, damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := digest.Of(digest.SHA256, []byte("text"))
			change := func() {
				rot(t, s, d)
				rot(t, s, d)
				if err := s.verifier.Verify(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			if c.used {
				storePut(t, s, "text")
				change()
			}
			v := s.verifier.Vouch()
			defer v.Close()
			v.Used(d)
			if !c.used {
				storePut(t, s, "text")
			}
			if c.changed {
				change()
			}
			if c.gone {
				evictAll(t, s, d)
			}
			if c.anew {
				storePut(t, s, "text")
			}
			if c.damaged {
				wantDamaged(t, v.Wait(t.Context()), d)
			} else {
				wantVouched(t, v)
			}
		})
	}
}

// TestClosedVouching: nobody verifies or keeps for it any more what it used, or uses later.
func TestClosedVouching(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 50})
	d := putVast(t, s)
	v := s.verifier.Vouch()
	v.Used(d)
	v.Used(d)
	v.Close()
	v.Used(d)
	other := storePut(t, s, "other")
	forget(t, s, other)
	v.Used(other)
	generation, _, _ := s.files.pinProof(other)
	v.check(version{other, generation}) // as if it was closed meanwhile
	storeAwaitUnpinned(t, s)
	if got := s.Stats().VerifiedBlobs; got != 0 || len(v.order) != 1 {
		t.Errorf("%d blobs were verified of %d uses", got, len(v.order))
	}
}

// TestVouchingForWhatIsNotThere keeps nothing.
func TestVouchingForWhatIsNotThere(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{VerifyEvery: -1})
	v := s.verifier.Vouch()
	v.Used(digest.Of(digest.SHA256, []byte("text")))
	storePut(t, s, "text")
	v.Close()
	if got := s.Stats().PinnedBytes; got != 0 {
		t.Errorf("%d bytes are pinned", got)
	}
}

// TestVouchingOfWhatCouldNotBeOpened in the background: Wait looks again. If it is gone by then, nobody knows what was read.
func TestVouchingOfWhatCouldNotBeOpened(t *testing.T) {
	for _, gone := range []bool{false, true} {
		s := storeOpen(t, t.TempDir(), Options{})
		d := storePut(t, s, "text")
		forget(t, s, d)
		place, away := s.files.path(d), filepath.Join(s.TempDir(), "away")
		if err := os.Rename(place, away); err != nil {
			t.Fatal(err)
		}
		putSocket(t, place)
		v := s.verifier.Vouch()
		v.Used(d)
		if c := v.used[v.order[0]].check; c == nil {
			t.Error("nobody verifies it")
		} else if <-c.done; c.err == nil || errors.Is(c.err, cas.ErrCorrupt) {
			t.Errorf("a socket is verified: %v", c.err)
		}
		if err := os.Rename(away, place); err != nil {
			t.Fatal(err)
		}
		if gone {
			evictAll(t, s, d)
			wantDamaged(t, v.Wait(t.Context()), d)
		} else {
			wantVouched(t, v)
		}
		v.Close()
	}
}

// TestVouchingWaitsForWhatLeaves: whether a file that leaves is damaged is known in a moment.
func TestVouchingWaitsForWhatLeaves(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	rot(t, s, d)
	began, goOn := make(chan struct{}), make(chan struct{})
	setAside := s.files.setAside
	s.files.setAside = func(d digest.Digest, path, found string) error {
		close(began)
		<-goOn
		return setAside(d, path, found)
	}
	var group sync.WaitGroup
	group.Go(func() { s.MakeRoom(1) })
	<-began
	answer := make(chan error, 1)
	group.Go(func() { answer <- v.Wait(t.Context()) })
	select {
	case err := <-answer:
		t.Errorf("it is answered before that is known: %v", err)
	case <-time.After(50 * time.Millisecond): // what does not happen cannot be waited for
	}
	close(goOn)
	group.Wait()
	if len(answer) > 0 {
		wantDamaged(t, <-answer, d)
	}
}

// TestVerificationThatBeganBefore somebody waits says nothing about what is changed meanwhile.
func TestVerificationThatBeganBefore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	_, known := proofOf(t, s, d)
	forget(t, s, d)
	generation, _, _ := s.files.pinProof(d)
	checks := s.verifier.checks
	c := checks.ask(version{d, generation})
	checks.mu.Lock()
	checks.beginLocked(c)
	checks.mu.Unlock()
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	answer := make(chan error, 1)
	go func() { answer <- v.Wait(t.Context()) }()
	for asked := 0; asked < 3; time.Sleep(time.Millisecond) { // the test, Used and Wait
		checks.mu.Lock()
		asked = c.askers
		checks.mu.Unlock()
	}
	rot(t, s, d)
	s.files.prove(d, generation, known)
	checks.end(c, nil)
	wantDamaged(t, <-answer, d)
}

// TestVerifiedReads: what somebody has read is right, or its file is looked at.
func TestVerifiedReads(t *testing.T) {
	broken := errors.New("the line is broken")
	for name, c := range map[string]struct {
		first  string
		err    error
		rotten bool
		want   error // nil: the text
	}{
		"right":                      {first: "text"},
		"wrong once":                 {first: "tent"},
		"not there":                  {err: cas.ErrNotFound, want: cas.ErrNotFound},
		"an error":                   {err: broken, want: broken},
		"an error of a damaged file": {err: broken, rotten: true, want: cas.ErrNotFound},
		"wrong":                      {first: "tent", rotten: true, want: cas.ErrNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			if c.rotten {
				rot(t, s, d)
			}
			reads := 0
			b, err := s.verifier.read(t.Context(), d, func() ([]byte, uint64, error) {
				if reads++; reads > 1 {
					return []byte("text"), 0, nil
				}
				return []byte(c.first), 0, c.err
			})
			if !errors.Is(err, c.want) || c.want == nil && string(b) != "text" {
				t.Errorf("read %q, %v", b, err)
			}
			if missing := new(cas.MissingError); errors.As(err, &missing) != (c.want == cas.ErrNotFound) {
				t.Errorf("%v", err)
			}
			if s.Stats().VerifiedBlobs == 0 && c.err != cas.ErrNotFound {
				t.Error("nothing is said to be verified")
			}
		})
	}
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	_, err := s.verifier.read(t.Context(), d, func() ([]byte, uint64, error) { return []byte("tent"), 0, nil })
	if !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("what changes always: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.verifier.Verdict(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("a verdict without a context: %v", err)
	}
}

// putSocket puts what nobody can open at path.
func putSocket(t *testing.T, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // a short name
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	if err := os.Rename(filepath.Join(dir, "s"), path); err != nil {
		t.Fatal(err)
	}
}

// TestVouchingsShareAVerification: it goes on as long as one of them is not closed.
func TestVouchingsShareAVerification(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 50})
	d := putVast(t, s)
	v, w := s.verifier.Vouch(), s.verifier.Vouch()
	v.Used(d)
	w.Used(d)
	v.Close()
	v.Close()
	if s.Stats().PinnedBytes == 0 {
		t.Error("nobody verifies it any more")
	}
	w.Close()
	storeAwaitUnpinned(t, s)
}

// putVast makes a blob that takes days to read, of which nobody knows whether it is right.
func putVast(t *testing.T, s *Store) digest.Digest {
	t.Helper()
	d, err := digest.Parse(digest.SHA256, strings.Repeat("5", 64), 8<<40)
	if err == nil {
		err = s.files.reserve(d.SizeBytes())
	}
	from := filepath.Join(s.TempDir(), "vast")
	if err == nil {
		err = errors.Join(os.WriteFile(from, nil, 0o600), os.Truncate(from, d.SizeBytes()))
	}
	if err == nil {
		err = s.files.settle(t.Context(), d, arrival{from: from})
	}
	if err != nil {
		t.Fatal(err)
	}
	s.files.unpin(d)
	forget(t, s, d)
	return d
}

// storeAwaitUnpinned returns when nothing is kept in s any more.
func storeAwaitUnpinned(t *testing.T, s *Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.Stats().PinnedBytes > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are pinned", s.Stats().PinnedBytes)
		}
	}
}

// TestNeverVerified: no period is so long that what was never verified is fresh, and with none nothing ever is.
func TestNeverVerified(t *testing.T) {
	for every, p := range map[time.Duration]proof{
		100 * 365 * 24 * time.Hour: {mark: 1}, -1: {mark: 1, at: uint32(time.Now().Unix()) + 1},
	} {
		s := storeOpen(t, t.TempDir(), Options{VerifyEvery: every})
		if s.verifier.fresh(p) {
			t.Errorf("%+v is fresh for %s", p, every)
		}
	}
}

// TestReadOfWhatIsWrong: what was read unasked and is there still is looked at.
func TestReadOfWhatIsWrong(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	rot(t, s, d)
	v := s.verifier.Vouch()
	defer v.Close()
	v.Read(d)
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestVerificationsGetOld: what was verified longer ago than VerifyEvery is verified again, and not before.
func TestVerificationsGetOld(t *testing.T) {
	const every = time.Hour
	for age, again := range map[time.Duration]int64{every / 2: 0, every + time.Minute: 1, -time.Minute: 1} {
		s := storeOpen(t, t.TempDir(), Options{VerifyEvery: every})
		d := storePut(t, s, "text")
		s.files.mu.Lock()
		e := s.files.index.lookup(d)
		e.proof.at = uint32(time.Now().Add(-age).Unix())
		s.files.mu.Unlock()
		before := s.Stats().VerifiedBlobs
		v := s.verifier.Vouch()
		v.Used(d)
		wantVouched(t, v)
		v.Close()
		if got := s.Stats().VerifiedBlobs - before; got != again {
			t.Errorf("of a blob that was verified %s ago %d were verified, want %d", age, got, again)
		}
	}
}

// TestVouchingRemembersWhoUsedADamagedFile: another reader sets it aside and fetches the
// right bytes before the first one asks.
func TestVouchingRemembersWhoUsedADamagedFile(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	before := s.verifier.Vouch()
	defer before.Close()
	before.Used(d)
	rot(t, s, d)
	if got := storeText(s, d); !strings.Contains(got, "not found") {
		t.Errorf("read %q", got)
	}
	storePut(t, s, "text")
	after := s.verifier.Vouch()
	defer after.Close()
	after.Used(d)
	before.Used(d) // the new one, too
	wantDamaged(t, before.Wait(t.Context()), d)
	wantVouched(t, after)
}

func TestVouchingOfWhatIsEvicted(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	d := storePut(t, s, "aaaa")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	for i := range 4 {
		storePut(t, s, fmt.Sprintf("%04d", i))
	}
	if s.Contains(d) {
		t.Fatal("it is not evicted")
	}
	wantVouched(t, v)
	storePut(t, s, "aaaa")
	wantVouched(t, v)
}

// TestVouchingOfWhatWasReadUnasked: the kernel shows files of the store without a word, so a blob may be gone, or have come anew, when its
// reader is known. Nobody can look at the file any more that was read.
func TestVouchingOfWhatWasReadUnasked(t *testing.T) {
	for name, c := range map[string]struct {
		verified, anew, before bool
	}{
		"gone": {}, "verified and gone": {verified: true}, "came anew": {anew: true},
		"verified and came anew": {verified: true, anew: true}, "gone before, came anew": {anew: true, before: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "aaaa")
			if !c.verified {
				forget(t, s, d)
			}
			v := s.verifier.Vouch()
			defer func() { v.Close() }()
			s.MakeRoom(1)
			if s.Has(d) {
				t.Fatal("it is not evicted")
			}
			if c.before {
				v.Close()
				v = s.verifier.Vouch()
			}
			if c.anew {
				storePut(t, s, "aaaa")
			}
			next := v.Next()
			defer next.Close()
			v.Read(d)
			next.Read(d)
			for _, v := range []*Vouching{v, next} {
				if c.verified || c.before {
					wantVouched(t, v)
				} else {
					wantDamaged(t, v.Wait(t.Context()), d)
				}
			}
		})
	}
}

// TestVouchingKeepsWhatIsNotVerifiedYet: it could not be looked at once it is evicted.
func TestVouchingKeepsWhatIsNotVerifiedYet(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12, VerifyEvery: -1})
	d := storePut(t, s, "aaaa")
	v := s.verifier.Vouch()
	v.Used(d)
	v.Used(d)
	for i := range 4 {
		storePut(t, s, fmt.Sprintf("%04d", i))
	}
	if !s.Contains(d) {
		t.Fatal("it is evicted")
	}
	wantVouched(t, v)
	v.Close()
	v.Close()
	v.Used(d)
	if s.files.index.pinned != 0 {
		t.Errorf("%d bytes are pinned", s.files.index.pinned)
	}
}

func TestVouchingOfTheEmptyBlob(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	v := s.verifier.Vouch()
	defer v.Close()
	empty := digest.SHA256.Empty()
	v.Used(empty)
	wantVouched(t, v)
	if err := os.Chmod(s.files.emptyPath(), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.files.emptyPath(), []byte("x"), 0); err != nil {
		t.Fatal(err)
	}
	wantDamaged(t, v.Wait(t.Context()), empty)
	if err := s.verifier.Verify(t.Context(), empty); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(s.files.emptyPath()); err != nil || info.Size() != 0 || info.Mode() != 0o444 {
		t.Errorf("afterwards %v, %v", info, err)
	}
	wantDamaged(t, v.Wait(t.Context()), empty)
}

func TestVouchingEndsWithItsContextAndTheStore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := v.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("without a context: %v", err)
	}
	if err := s.verifier.Verify(t.Context(), d); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.verifier.Verify(t.Context(), d); !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("closed: %v", err)
	}
}

// TestVerifyIsNoUse: what goes first goes first, however often it was verified.
func TestVerifyIsNoUse(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	var all []digest.Digest
	for i := range 3 {
		all = append(all, storePut(t, s, fmt.Sprintf("%04d", i)))
	}
	for _, d := range []digest.Digest{all[1], all[0], all[0]} {
		if err := s.verifier.Verify(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if s.files.index.pinned != 0 {
			t.Errorf("%d bytes are pinned", s.files.index.pinned)
		}
	}
	for i, d := range all {
		storePut(t, s, fmt.Sprintf("%04d", 10+i))
		for j, other := range all {
			if _, _, ok := s.files.look(other); ok != (j > i) {
				t.Errorf("after %d blobs more %s, which came as number %d, is there: %t", i+1, d, j, ok)
			}
		}
	}
}

// TestVerifyWhileItIsReplaced: a blob that goes and comes while it is read is what it is in the end.
func TestVerifyWhileItIsReplaced(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 20})
	d := digest.Of(digest.SHA256, make([]byte, 1<<19))
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			if err := s.PutBytes(t.Context(), d, make([]byte, 1<<19)); err != nil {
				t.Error(err)
			}
			s.MakeRoom(1)
		}
	})
	for range 200 {
		if err := s.verifier.Verify(t.Context(), d); err != nil && !errors.Is(err, cas.ErrNotFound) {
			t.Fatal(err)
		}
	}
	cancel()
	group.Wait()
	if err := s.verifier.Verify(ctx, d); !errors.Is(err, context.Canceled) && !errors.Is(err, cas.ErrNotFound) {
		t.Errorf("a context that has ended: %v", err)
	}
	if st := s.Stats(); st.DamagedBlobs != 0 || len(s.verifier.checks.direct) != 0 {
		t.Errorf("%+v, %d are verified", st, len(s.verifier.checks.direct))
	}
}

func TestStoreSetsAsideWhatIsDamaged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 20, Logger: zap.New(core)})
	text := func(i int) string { return fmt.Sprintf("%04d %0200d", i, i) }
	var first digest.Digest
	for i := range aside.MaxFiles + 3 {
		d := storePut(t, s, text(i))
		rot(t, s, d)
		wantDamaged(t, s.verifier.Verify(t.Context(), d), d)
		if i == 0 {
			first = d
		}
	}
	large := digest.Of(digest.SHA256, make([]byte, 20_000)) // more than a hundredth of the store
	if err := s.PutBytes(t.Context(), large, make([]byte, 20_000)); err != nil {
		t.Fatal(err)
	}
	rot(t, s, large)
	wantDamaged(t, s.verifier.Verify(t.Context(), large), large)
	names, err := os.ReadDir(filepath.Join(s.Dir(), "aside"))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Stats()
	if got.DamagedBlobs != aside.MaxFiles+4 || got.AsideBlobs > aside.MaxFiles || got.AsideBytes > 1<<20/100 ||
		int(got.AsideBlobs) != len(names) || len(names) < 40 {
		t.Errorf("%d files aside, %+v", len(names), got)
	}
	for _, n := range names {
		if strings.Contains(n.Name(), first.Hash()) {
			t.Error("the first is kept still")
		}
	}
	entry := logs.FilterMessage("a blob in the store is damaged").All()[0].ContextMap()
	if entry["digest"] != first.String() || entry["file"] != s.files.path(first) ||
		!strings.Contains(fmt.Sprint(entry["it"]), "has 205 bytes of the hash ") ||
		!strings.Contains(fmt.Sprint(entry["device"]), ":") || !strings.Contains(fmt.Sprint(entry["kept_as"]), "/aside/") {
		t.Errorf("logged %v", entry)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storeOpen(t, s.Dir(), Options{MaxBytes: 1 << 20})
	if again := s.Stats(); again.AsideBlobs != got.AsideBlobs || again.AsideBytes != got.AsideBytes {
		t.Errorf("after a restart %+v", again)
	}
}

// TestVouchingUnderAll has everything happen at once: uses, evictions, rot, reads, uploads
// and waits. No Vouching may vouch for bytes that were wrong when they were read.
func TestVouchingUnderAll(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 40_000})
	const blobs = 32
	texts := make([][]byte, blobs)
	ds := make([]digest.Digest, blobs)
	for i := range texts {
		texts[i] = bytes.Repeat([]byte{byte(i)}, 2000)
		ds[i] = digest.Of(digest.SHA256, texts[i])
	}
	var rotting sync.Mutex // a file that is being changed has no truth
	var group sync.WaitGroup
	var caught, vouched int64
	var counts sync.Mutex
	for worker := range 8 {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(worker), 16))
			for range 150 {
				v, wrong := s.verifier.Vouch(), false
				for range 4 {
					i := random.IntN(blobs)
					if err := s.PutBytes(t.Context(), ds[i], texts[i]); err != nil && !errors.Is(err, cas.ErrNoSpace) {
						t.Error(err)
					}
					if random.IntN(6) == 0 {
						rotting.Lock()
						if file, err := s.files.openBlob(ds[i]); err == nil && s.files.pin(ds[i]) {
							_ = file.Chmod(0o644)
							if w, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), os.O_WRONLY, 0); err == nil {
								_, _ = w.WriteAt([]byte{0xff}, 1000)
								_ = w.Close()
							}
							_ = file.Close()
							s.files.unpin(ds[i])
						}
						rotting.Unlock()
					}
					v.Used(ds[i])
					file, err := s.OpenBlob(t.Context(), ds[i])
					if err != nil {
						continue
					}
					b := make([]byte, 2000)
					_, err = file.ReadAt(b, 0)
					_ = file.Close()
					wrong = wrong || err != nil || !bytes.Equal(b, texts[i])
				}
				err := v.Wait(t.Context())
				if wrong && err == nil {
					t.Error("wrong bytes were vouched for")
				}
				if err != nil && !errors.Is(err, cas.ErrCorrupt) {
					t.Error(err)
				}
				counts.Lock()
				if err == nil {
					vouched++
				} else {
					caught++
				}
				counts.Unlock()
				v.Close()
			}
		})
	}
	group.Wait()
	if vouched == 0 || caught == 0 {
		t.Errorf("%d vouched for, %d caught", vouched, caught)
	}
	t.Logf("%d vouched for, %d caught", vouched, caught)
	if s.files.index.pinned != 0 || storeReserved(s) != 0 || len(s.verifier.checks.checks) != 0 {
		t.Errorf("%d bytes pinned, %d reserved, %d checks", s.files.index.pinned, storeReserved(s), len(s.verifier.checks.checks))
	}
	storeWantConsistent(t, s)
}

// TestVouchingVerifiesInTheBackground: nobody waits for it, and the blob stays until then.
func TestVouchingVerifiesInTheBackground(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 4 << 20})
	large := strings.Repeat("x", 3<<20)
	d := storePut(t, s, large)
	forget(t, s, d)
	v := s.verifier.Vouch()
	defer v.Close()
	v.Used(d)
	v.mu.Lock()
	c := v.used[v.order[0]].check
	v.mu.Unlock()
	if c == nil {
		t.Fatal("nobody verifies it")
	}
	<-c.done
	if got := s.Stats(); got.VerifiedBlobs != 1 || got.VerifiedBytes != 3<<20 || !s.verifier.unchanged(c.version) {
		t.Errorf("%+v", got)
	}
	wantVouched(t, v)
	if got := s.Stats(); got.VerifiedBlobs != 1 || s.files.index.pinned != 0 {
		t.Errorf("afterwards %+v, %d pinned", got, s.files.index.pinned)
	}
}
