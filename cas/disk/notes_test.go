package disk

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
)

// noted opens the store in dir and returns how many of ds are known to be verified.
func noted(t *testing.T, dir string, ds ...digest.Digest) (known int) {
	t.Helper()
	s := storeOpen(t, dir, Options{})
	s.notes.loading.Wait()
	for _, d := range ds {
		if _, p, ok := s.files.pinProof(d); ok {
			s.files.unpin(d)
			if s.verifier.fresh(p) {
				known++
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return known
}

// ripen makes all verifications old enough to be noted.
func ripen(s *Store) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	for _, e := range s.files.index.entries {
		e.proof.at -= uint32(unsyncedFor / time.Second)
	}
}

func TestNotesSurviveARestart(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	ds := []digest.Digest{storePut(t, s, "a"), storePut(t, s, "b"), storePut(t, s, "c")}
	ripen(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "verified")
	right, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot := bytes.Index(right, []byte(folder.BootID()))
	program := boot + len(folder.BootID()) + 1
	for what, c := range map[string]struct {
		change func(b []byte) []byte
		want   int
	}{
		"whole":           {func(b []byte) []byte { return b }, 3},
		"torn":            {func(b []byte) []byte { return b[:len(b)-7] }, 0},
		"cut by a record": {func(b []byte) []byte { return b[:len(b)-noteBytes] }, 0},
		"empty":           {func([]byte) []byte { return nil }, 0},
		"zeros":           {func(b []byte) []byte { return make([]byte, len(b)) }, 0},
		"a bit":           {func(b []byte) []byte { b[len(b)-40] ^= 1; return b }, 0},
		"another boot": {func(b []byte) []byte {
			b[boot] ^= 1
			return resum(b)
		}, 0},
		"another program": {func(b []byte) []byte {
			b[program] ^= 1
			return resum(b)
		}, 0},
		"the sum of others": {resum, 3},
	} {
		t.Run(what, func(t *testing.T) {
			if err := os.WriteFile(path, c.change(bytes.Clone(right)), 0o600); err != nil {
				t.Fatal(err)
			}
			if got := noted(t, dir, ds...); got != c.want {
				t.Errorf("%d of 3 are known, want %d", got, c.want)
			}
			if err := os.WriteFile(path, right, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
	t.Run("lost", func(t *testing.T) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if got := noted(t, dir, ds...); got != 0 {
			t.Errorf("%d are known", got)
		}
		if err := os.WriteFile(path, right, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("one changed meanwhile", func(t *testing.T) {
		rotFile(t, filepath.Join(dir, BlobPath(ds[1])))
		if got := noted(t, dir, ds...); got != 2 {
			t.Errorf("%d are known", got)
		}
	})
}

// resum gives b the sum that it ought to have.
func resum(b []byte) []byte {
	whole := b[:len(b)-digest.HashSize]
	return digest.Of(digest.SHA256, whole).AppendHash(bytes.Clone(whole))
}

// TestNotesAreWrittenWhileBlobsComeAndGo: the table is walked bit by bit.
func TestNotesAreWrittenWhileBlobsComeAndGo(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{MaxBytes: 4000})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 3000 {
			storePut(t, s, string(rune('a'+i%26))+string(rune(i)))
		}
	}()
	for range 50 {
		s.notes.write()
	}
	<-done
	ds := make([]digest.Digest, 0, 100)
	for d := range s.files.index.entries {
		ds = append(ds, d)
	}
	ripen(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := noted(t, dir, ds...); got != len(ds) {
		t.Errorf("%d of %d are known", got, len(ds))
	}
}

// TestNotesComeAfterBytes: a verification that is so recent that its bytes may not be on the disk
// yet is not known after a restart; a change is. The verification is noted later, even if nothing
// else has changed.
func TestNotesComeAfterBytes(t *testing.T) {
	dir := t.TempDir()
	s := storeOpen(t, dir, Options{})
	ds := []digest.Digest{storePut(t, s, "a"), storePut(t, s, "b")}
	old := storePut(t, s, "old")
	s.files.mu.Lock()
	s.files.index.lookup(old).proof.at -= uint32(unsyncedFor/time.Second) - 2
	s.files.mu.Unlock()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := noted(t, dir, append(ds, old)...); got != 0 {
		t.Errorf("%d are known", got)
	}
	rotFile(t, filepath.Join(dir, BlobPath(ds[0])))
	s = storeOpen(t, dir, Options{})
	s.notes.loading.Wait()
	missing, err := s.verifier.FindUnsound(t.Context(), ds, false)
	if err != nil || len(missing) != 1 || missing[0] != ds[0] {
		t.Errorf("missing %v, %v", missing, err)
	}
	if sound, err := s.verifier.ContainsSound(t.Context(), ds[1]); !sound || err != nil {
		t.Errorf("vouched for %t, %v", sound, err)
	}
	s.notes.write()
	ripen(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := noted(t, dir, ds[1]); got != 1 {
		t.Error("what was young when notes were written is never noted")
	}
}

// TestNotesKnowOfStamps: changes that the store itself makes to a file do not make the file
// doubtful.
func TestNotesKnowOfStamps(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	s.files.mu.Lock()
	s.files.index.lookup(d).stamped = 0
	s.files.mu.Unlock()
	if !s.Contains(d) || !s.verifier.unchanged(version{d, 1}) {
		t.Error("a stamp makes the blob doubtful")
	}
}
