package disk

import (
	"context"
	"errors"
	"fmt"
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

// TestVerificationIsNotMisledByTheStore, which notes a use in the time of a file while that is
// being read, by one of two readers.
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
	v := using(t, s, d)
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

// TestOldReaders: a reader of a file that was evicted or stamped meanwhile says nothing about the
// present file.
func TestOldReaders(t *testing.T) {
	for name, meanwhile := range map[string]func(t *testing.T, s *Store, d digest.Digest){
		"came anew": func(t *testing.T, s *Store, d digest.Digest) {
			evictAll(t, s, d)
			storePut(t, s, "text")
		},
		"stamped": func(t *testing.T, s *Store, d digest.Digest) {
			stamp(t, s, d)
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
			v := using(t, s, d)
			sound()
			wantVouched(t, v)
			if generation, _, _ := s.files.look(d); !s.verifier.unchanged(version{d, generation}) {
				t.Error("it has to be verified again")
			}
		})
	}
}

// TestStampOfWhatIsWrittenTo: the store changes the times of a file while a stranger may write to
// it. It does not take the stranger's change for its own.
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
		stamp(t, s, d)
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

// TestStampOfWhatWasWrittenTo: that the store changes the times of a file does not hide that a
// stranger had changed it before.
func TestStampOfWhatWasWrittenTo(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := using(t, s, d)
	rot(t, s, d)
	stamp(t, s, d)
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestStampThatNobodyCanVouchFor: a stranger had the file open while the store stamped it. The
// bytes read meanwhile are unknown.
func TestStampThatNobodyCanVouchFor(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	if err := errors.Join(os.Chmod(s.files.path(d), 0o644), s.verifier.Verify(t.Context(), d)); err != nil {
		t.Fatal(err)
	}
	v := using(t, s, d)
	stranger, err := os.OpenFile(s.files.path(d), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	stamp(t, s, d)
	if err := stranger.Close(); err != nil {
		t.Fatal(err)
	}
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestVerificationThatBeganBefore: a verification that began before a caller waits says nothing
// about changes during it.
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
	v := using(t, s, d)
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

// TestVerifiedReads: bytes that a caller has read are right, or their file is checked.
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
			b, err := s.verifier.read(t.Context(), d, func() ([]byte, proof, error) {
				if reads++; reads > 1 {
					return []byte("text"), proof{}, nil
				}
				return []byte(c.first), proof{}, c.err
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
	_, err := s.verifier.read(t.Context(), d, func() ([]byte, proof, error) { return []byte("tent"), proof{}, nil })
	if !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("what changes always: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.verifier.Verdict(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("a verdict without a context: %v", err)
	}
}

// TestNeverVerified: no period is so long that what was never verified is fresh, and with none
// nothing ever is.
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

// TestVerificationsGetOld: a blob that was verified longer ago than VerifyEvery is verified again,
// and not earlier.
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

// TestVerifiedMeanwhile: a caller that looked at the state of a blob just before its verification
// does not cause another one.
func TestVerifiedMeanwhile(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	forget(t, s, d)
	generation, known, _ := s.files.pinProof(d)
	ver := version{d, generation}
	if err := s.verifier.Verify(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if c := s.verifier.ask(ver, known); c != nil {
		t.Error("it is verified again")
	}
	storeAwaitUnpinned(t, s)
	generation, known, _ = s.files.pinProof(d)
	c := s.verifier.ask(version{d, generation}, known)
	if c == nil {
		t.Fatal("what was known is not verified although somebody asks for it")
	}
	s.verifier.checks.leave(c)
}

// TestVerifyIsNoUse: verifications do not change the order of eviction.
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

// TestVerifyWhileItIsReplaced: if a blob is replaced while it is read, its last file counts.
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
			s.Evict(1)
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
