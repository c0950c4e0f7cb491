package disk

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// touch changes a file and none of its bytes, as chown -R and backups by hard links do.
func touch(t *testing.T, s *Store, d digest.Digest) {
	t.Helper()
	name := s.files.path(d)
	if err := errors.Join(os.Chmod(name, 0o400), os.Chmod(name, 0o444)); err != nil {
		t.Fatal(err)
	}
}

// settle waits until the next change of the file of d gives it another mark for certain.
func settle(t *testing.T, s *Store, d digest.Digest) {
	t.Helper()
	for {
		_, settled, err := tamper.SettledMarkOf(s.files.path(d))
		if err != nil {
			t.Fatal(err)
		}
		if settled {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// TestChangedBeforeItsUse: a stranger's change of a file counts for earlier users. It does not
// count for later users, who read the verified content, even if the store stamps the file
// meanwhile.
func TestChangedBeforeItsUse(t *testing.T) {
	for name, stamped := range map[string]bool{"not stamped": false, "stamped": true} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			earlier, unasked := using(t, s, d), s.verifier.Vouch()
			defer unasked.Close()
			touch(t, s, d)
			settle(t, s, d)
			later := using(t, s, d)
			if stamped {
				stamp(t, s, d)
			}
			unasked.Read(d)
			wantVouched(t, later)
			wantDamaged(t, earlier.Wait(t.Context()), d)
			wantDamaged(t, unasked.Wait(t.Context()), d)
			touch(t, s, d)
			wantDamaged(t, later.Wait(t.Context()), d)
			if !s.Contains(d) || s.Stats().DamagedBlobs != 0 {
				t.Errorf("what is right is gone: %+v", s.Stats())
			}
		})
	}
}

// TestWrongBeforeItsUse: a file that was changed before a user began to use it is not relied on
// until it is read, even if the user has given up: not by queries, not by evictions, not after
// restarts.
func TestWrongBeforeItsUse(t *testing.T) {
	for name, ask := range map[string]func(t *testing.T, s *Store, d digest.Digest) *Store{
		"asked for": func(_ *testing.T, s *Store, _ digest.Digest) *Store { return s },
		"after two starts": func(t *testing.T, s *Store, _ digest.Digest) *Store {
			for range 2 {
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = storeOpen(t, s.Dir(), Options{})
				s.notes.loading.Wait()
			}
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			rot(t, s, d)
			settle(t, s, d)
			s.verifier.notice(d)
			if s.verifier.unchanged(version{d, 1}) {
				t.Error("it is relied on")
			}
			s = ask(t, s, d)
			missing, err := s.Of("").FindUnsound(t.Context(), []digest.Digest{d}, false)
			if err != nil || len(missing) != 1 {
				t.Errorf("missing %v, %v", missing, err)
			}
		})
	}
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := using(t, s, d)
	rot(t, s, d)
	settle(t, s, d)
	s.verifier.notice(d)
	rot(t, s, d)
	evictAll(t, s, d)
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestChangedWhileUsed: a user who used a file before strangers changed it learns of the change
// even when the file is gone, and even if it was verified after the change was undone. Later users
// do not.
func TestChangedWhileUsed(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v, unasked := using(t, s, d), s.verifier.Vouch()
	defer unasked.Close()
	rot(t, s, d)
	rot(t, s, d)
	if err := s.verifier.Verify(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	later := using(t, s, d)
	unasked.Read(d)
	for range 2 {
		wantVouched(t, later)
		wantDamaged(t, v.Wait(t.Context()), d)
		wantDamaged(t, unasked.Wait(t.Context()), d)
		if s.Has(d) {
			evictAll(t, s, d)
		}
	}
	storePut(t, s, "text")
	wantVouched(t, later)
	wantDamaged(t, v.Wait(t.Context()), d)
}

// TestChangedJustBeforeItsUse: if a change is so recent that the file could change again and keep
// its mark, the change counts for the next user.
func TestChangedJustBeforeItsUse(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	for range 100 {
		before, known := proofOf(t, s, d)
		touch(t, s, d)
		s.verifier.notice(d)
		_, late, err := tamper.SettledMarkOf(s.files.path(d))
		if err != nil {
			t.Fatal(err)
		}
		if late {
			continue // the machine is busy
		}
		if after, now := proofOf(t, s, d); after != before || now != known {
			t.Errorf("%+v is known, and was %+v", now, known)
		}
		return
	}
	t.Error("the file was never noticed in time")
}

// TestChangedBetweenStarts: a file whose attributes differ from its note, as in a copy of a store
// or after a crash, is verified, and does not count against its users.
func TestChangedBetweenStarts(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d, read := storePut(t, s, "text"), storePut(t, s, "read")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	touch(t, s, d)
	touch(t, s, read)
	s = storeOpen(t, s.Dir(), Options{})
	s.notes.loading.Wait()
	v := using(t, s, d)
	v.Read(read)
	wantVouched(t, v)
}
