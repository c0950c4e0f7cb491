package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
	"golang.org/x/sys/unix"
)

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
				v := using(t, s, fine, d)
				wantVouched(t, v)
				change(t, s, d)
				wantDamaged(t, v.Wait(t.Context()), d)
				if s.Contains(d) || !s.Contains(fine) {
					t.Error("it is there still, or what is fine is not")
				}
				storePut(t, s, text)
				// It was used all the same.
				wantDamaged(t, v.Wait(t.Context()), d)
				again := using(t, s, d)
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

// TestVouchingOfWhatIsRightAgain: it is unknown which bytes were read while a file was wrong. Later
// users read the right bytes.
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
			v := using(t, s, d)
			rot(t, s, d)
			back(s.files.path(d))
			wantDamaged(t, v.Wait(t.Context()), d)
			wantDamaged(t, v.Wait(t.Context()), d)
			later := using(t, s, d)
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
	v := using(t, s, d)
	stampNext(s, d)
	before, err1 := tamper.MarkOf(s.files.path(d))
	present := s.Contains(d)
	after, err2 := tamper.MarkOf(s.files.path(d))
	if err := errors.Join(err1, err2); err != nil || !present || before == after {
		t.Fatalf("the use was not noted: %v", err)
	}
	wantVouched(t, v)
}

// TestVouchingOfWhatWasChangedAndEvicted: the file is right when it is evicted, but it is unknown
// which bytes were read.
func TestVouchingOfWhatWasChangedAndEvicted(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	d := storePut(t, s, "text")
	v := using(t, s, d)
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
	if got := s.Stats(); got.DamagedBlobs != 0 || got.AsideBlobs != 0 {
		t.Errorf("what is right is set aside: %+v", got)
	}
}

// TestVouchingOfWhatCannotBeOpenedWhenItGoes: it is unknown which bytes were read of a changed
// file.
func TestVouchingOfWhatCannotBeOpenedWhenItGoes(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := using(t, s, d)
	putSocket(t, s.files.path(d))
	evictAll(t, s, d)
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestStrangersOfOtherFiles: a change of a blob's file does not count for the blob's next file, nor
// for users who began after the change was undone.
func TestStrangersOfOtherFiles(t *testing.T) {
	for name, c := range map[string]struct {
		gone, anew, used, changed bool // used: the file was used after it was changed and restored
		damaged                   bool
	}{
		"used afterwards":                {used: true},
		"used afterwards, changed again": {used: true, changed: true, damaged: true},
		"used afterwards, gone":          {used: true, gone: true},
		"used afterwards, came anew":     {used: true, gone: true, anew: true},
		"used before it came":            {changed: true, damaged: true},
		"used before it came, gone":      {changed: true, gone: true, damaged: true},
		"used before it came, came anew": {changed: true, gone: true, anew: true, damaged: true},
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
			v := using(t, s, d)
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
			wantVerdict(t, v, d, c.damaged)
		})
	}
}

// TestVouchingOfWhatCameUnverified: a file that arrived after its use was announced, and was
// removed before its verification, may have been read while wrong.
func TestVouchingOfWhatCameUnverified(t *testing.T) {
	for name, c := range map[string]struct{ verified, anew, damaged bool }{
		"verified":            {verified: true},
		"unverified":          {damaged: true},
		"unverified, anew":    {anew: true, damaged: true},
		"verified, came anew": {verified: true, anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := digest.Of(digest.SHA256, []byte("text"))
			storePut(t, s, "text")
			forget(t, s, d)
			evictAll(t, s, d) // before its use, which is none of the reader's
			v := using(t, s, d)
			storePut(t, s, "text")
			if !c.verified {
				forget(t, s, d)
			}
			evictAll(t, s, d)
			if c.anew {
				storePut(t, s, "text")
			}
			wantVerdict(t, v, d, c.damaged)
		})
	}
}

// TestVouchingWhileOtherFilesLeave: a long read of a new file does not have to be repeated because
// many old unverified files are removed meanwhile.
func TestVouchingWhileOtherFilesLeave(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	old := storePut(t, s, "old")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, notesName)); err != nil {
		t.Fatal(err)
	}
	s = storeOpen(t, dir, Options{})
	d := digest.Of(digest.SHA256, []byte("text"))
	v := using(t, s, d)
	storePut(t, s, "text")
	for range maxDamage + 1 {
		s.files.index.faults[unproven].add(old) // as its eviction does
	}
	evictAll(t, s, old)
	wantVouched(t, v)
	if n := s.files.count(unhashed); n > 0 || s.files.count(unproven) != maxDamage+2 {
		t.Errorf("%d files came unhashed, %d left unverified", n, s.files.count(unproven))
	}
}

// TestVouchingOfWhatOthersHadOpen: a file that others had open for writing when it was hashed is
// not verified, even if it was right. Its users are told about a later write, even if the file is
// removed before the next check.
func TestVouchingOfWhatOthersHadOpen(t *testing.T) {
	for name, c := range map[string]struct{ verified, written, damaged bool }{
		"verified before, written to":    {verified: true, written: true, damaged: true},
		"verified meanwhile, written to": {written: true, damaged: true},
		"verified before":                {verified: true},
		"verified meanwhile":             {},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			err := errors.Join(os.Chmod(s.files.path(d), 0o644), s.verifier.Verify(t.Context(), d))
			if err != nil {
				t.Fatal(err)
			}
			if !c.verified {
				forget(t, s, d)
			}
			stranger, err := os.OpenFile(s.files.path(d), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer stranger.Close()
			v := using(t, s, d)
			if check := v.used[v.order[0]].check; check != nil {
				<-check.done
			}
			if err := s.verifier.Verify(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			if IsVerified(s, d) {
				t.Error("it is verified")
			}
			if c.written {
				if _, err := stranger.WriteString("TEXT"); err != nil {
					t.Fatal(err)
				}
			}
			evictAll(t, s, d)
			wantVerdict(t, v, d, c.damaged)
		})
	}
}

// TestClosedVouching: after Close, the store verifies and keeps nothing for a Vouching.
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
	generation, known, _ := s.files.pinProof(other)
	v.check(version{other, generation}, known) // as if it was closed meanwhile
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

// TestVouchingOfWhatCouldNotBeOpened: the background check cannot open a file for a while. Wait
// checks again. If the file is gone by then, it is unknown which bytes were read.
func TestVouchingOfWhatCouldNotBeOpened(t *testing.T) {
	for _, gone := range []bool{false, true} {
		s := storeOpen(t, t.TempDir(), Options{})
		d := storePut(t, s, "text")
		forget(t, s, d)
		holder, err := os.Open(s.files.path(d))
		if err != nil {
			t.Fatal(err)
		}
		// Now it cannot be opened without waiting.
		if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
			t.Fatal(err)
		}
		v := s.verifier.Vouch()
		v.Used(d)
		if c := v.used[v.order[0]].check; c == nil {
			t.Error("nobody verifies it")
		} else if <-c.done; c.err == nil || errors.Is(c.err, cas.ErrCorrupt) {
			t.Errorf("a file that cannot be opened is verified: %v", c.err)
		}
		if err := holder.Close(); err != nil {
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
	v := using(t, s, d)
	rot(t, s, d)
	began, goOn := make(chan struct{}), make(chan struct{})
	setAside := s.files.setAside
	s.files.setAside = func(d digest.Digest, path, found string) error {
		close(began)
		<-goOn
		return setAside(d, path, found)
	}
	var group sync.WaitGroup
	group.Go(func() { s.Evict(1) })
	<-began
	answer := make(chan error, 1)
	group.Go(func() { answer <- v.Wait(t.Context()) })
	select {
	case err := <-answer:
		t.Errorf("it is answered before that is known: %v", err)
	case <-time.After(50 * time.Millisecond): // give a wrong second check the time to happen
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if sound, err := v.sound(ctx, v.order[0], 0); sound || !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits for the answer any more: %v, %v", sound, err)
	}
	close(goOn)
	group.Wait()
	if len(answer) > 0 {
		wantDamaged(t, <-answer, d)
	}
}

// TestVouchingsShareAVerification: a shared verification continues until all Vouchings are closed.
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

// TestReadOfWhatIsWrong: a file that was read without OpenBlob and still exists is checked.
func TestReadOfWhatIsWrong(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	rot(t, s, d)
	v := s.verifier.Vouch()
	defer v.Close()
	v.Read(d)
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestVouchingRemembersWhoUsedADamagedFile: another reader sets it aside and fetches the
// right bytes before the first one asks.
func TestVouchingRemembersWhoUsedADamagedFile(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	before := using(t, s, d)
	rot(t, s, d)
	if got := storeText(s, d); !strings.Contains(got, "not found") {
		t.Errorf("read %q", got)
	}
	storePut(t, s, "text")
	after := using(t, s, d)
	before.Used(d) // the new one, too
	wantDamaged(t, before.Wait(t.Context()), d)
	wantVouched(t, after)
}

func TestVouchingOfWhatIsEvicted(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 12})
	d := storePut(t, s, "aaaa")
	v := using(t, s, d)
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

// TestVouchingOfWhatWasReadUnasked: the kernel may read files of the store without telling the
// worker. A blob may be gone or replaced when its reader becomes known, and the file that was read
// can no longer be checked.
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
			evictAll(t, s, d)
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

// TestVouchingOfWhatWasReadBeforeItsDamageWasFound: a reader that becomes known late may have read
// the damaged file, although it was verified and a good file has come since. Later readers get the
// good file.
func TestVouchingOfWhatWasReadBeforeItsDamageWasFound(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := s.verifier.Vouch()
	defer v.Close()
	rot(t, s, d)
	if got := storeText(s, d); !strings.Contains(got, "not found") {
		t.Errorf("read %q", got)
	}
	storePut(t, s, "text")
	late, after := v.Next(), v.Next()
	defer late.Close()
	defer after.Close()
	late.Read(d)
	after.Used(d)
	wantDamaged(t, late.Wait(t.Context()), d)
	wantVouched(t, after)
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
	v.Used(digest.Of(digest.SHA256, []byte("0003"))) // the latest
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
	if sound, err := s.verifier.ContainsSound(t.Context(), empty); !sound || err != nil {
		t.Errorf("it is missing: %v, %v", sound, err)
	}
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

// TestEmptyBlobThatWasNot has a stranger write to the empty file, and truncate it before anyone
// checks.
func TestEmptyBlobThatWasNot(t *testing.T) {
	empty := digest.SHA256.Empty()
	for name, takeBack := range map[string]func(path string) error{
		"cut":     func(path string) error { return os.Truncate(path, 0) },
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			first, second := s.verifier.Vouch(), s.verifier.Vouch()
			defer first.Close()
			defer second.Close()
			first.Used(empty)
			second.Used(empty)
			path := s.files.emptyPath()
			err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, []byte("x"), 0), takeBack(path))
			if err != nil {
				t.Fatal(err)
			}
			wantDamaged(t, first.Wait(t.Context()), empty)
			wantDamaged(t, second.Wait(t.Context()), empty)
			later := using(t, s, empty)
			wantVouched(t, later)
		})
	}
}

func TestVouchingEndsWithItsContextAndTheStore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := using(t, s, d)
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

// TestVouchingVerifiesInTheBackground: no caller waits for the verification, and the blob stays
// until it ends.
func TestVouchingVerifiesInTheBackground(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 4 << 20})
	large := strings.Repeat("x", 3<<20)
	d := storePut(t, s, large)
	forget(t, s, d)
	v := using(t, s, d)
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
	evictAll(t, s, d)
	wantVouched(t, v) // it was right when it could go
}
