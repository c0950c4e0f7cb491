package disk

import (
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// proofOf is what is known of d.
func proofOf(t *testing.T, s *Store, d digest.Digest) (generation uint64, p proof) {
	t.Helper()
	generation, p, ok := s.files.look(d)
	if !ok {
		t.Fatalf("%s is not there", d)
	}
	return generation, p
}

// evictAll has all go that is not pinned, and fails if d does not.
func evictAll(t *testing.T, s *Store, d digest.Digest) {
	t.Helper()
	s.MakeRoom(1 << 40)
	if s.Has(d) {
		t.Fatal("it was not evicted")
	}
}

// TestFilesOfAKeyAreToldApart: what somebody knows of a file that has left says nothing about the one that came after it.
func TestFilesOfAKeyAreToldApart(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	before, was := proofOf(t, s, d)
	evictAll(t, s, d)
	storePut(t, s, "text")
	now, known := proofOf(t, s, d)
	if before == now || s.files.has(d, before) || !s.files.has(d, now) {
		t.Errorf("generations %d and %d are one", before, now)
	}
	if s.files.drop(d, before, "is wrong") || s.verifier.unchanged(version{d, before}) {
		t.Error("the old file is taken for the new one")
	}
	s.files.prove(d, before, was)
	if n := s.files.believe([]proven[digest.Digest]{{d, proof{at: 1, mark: known.mark + 1}}}); n != 0 {
		t.Error("a note of another file is believed")
	}
	if s.files.proveRead(d, before, was, 0) {
		t.Error("somebody is asked to look at the old file")
	}
	if _, p := proofOf(t, s, d); p != known {
		t.Errorf("%+v is known of the new file, was %+v", p, known)
	}
}

// TestNobodysFiles: what is said of a file that has left meanwhile is of no account.
func TestNobodysFiles(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	generation, known := proofOf(t, s, d)
	evictAll(t, s, d)
	s.files.prove(d, generation, known)
	s.files.restamped(d, known.mark, known.mark+1)
	if s.files.proveRead(d, generation, known, 0) || s.files.has(d, generation) || s.files.drop(d, generation, "is wrong") {
		t.Error("it is there still")
	}
}

// TestClosedStore has nothing any more, whatever is on the disk.
func TestClosedStore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	missing, err := s.FindMissing(t.Context(), []digest.Digest{d})
	if err != nil || len(missing) != 1 || s.Has(d) || s.Contains(d) || s.Retain(d) {
		t.Errorf("it is there: missing %v, %v", missing, err)
	}
	sound, err := s.verifier.ContainsSound(t.Context(), d)
	if sound || err != nil {
		t.Errorf("vouched for %t, %v", sound, err)
	}
}

// TestNewerVerificationsStay: notes, and readers that took long, do not make a verification older.
func TestNewerVerificationsStay(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d, unverified := storePut(t, s, "text"), storePut(t, s, "other")
	forget(t, s, unverified)
	generation, known := proofOf(t, s, d)
	older, soon, later := known, known, known
	older.at -= 100
	soon.at += noteAgain
	later.at += noteAgain + 1
	if n := s.files.believe([]proven[digest.Digest]{{d, older}}); n != 0 {
		t.Error("an older note is believed")
	}
	s.files.haveProved()
	for _, p := range []proof{older, soon} {
		s.files.proveRead(d, generation, p, noteAgain)
	}
	if _, p := proofOf(t, s, d); p != known || s.files.haveProved() {
		t.Errorf("%+v is known, was %+v", p, known)
	}
	s.files.proveRead(d, generation, later, noteAgain)
	if _, p := proofOf(t, s, d); p != later || !s.files.haveProved() {
		t.Errorf("%+v is known, want %+v", p, later)
	}
	for chunk := range s.files.proofs(notesChunk) {
		if len(chunk) != 1 || chunk[0].key != d {
			t.Errorf("verified are %v", chunk)
		}
	}
}

// TestVerificationsBesideStamps: the store changes the times of a file while it is read. That is not a stranger's doing; what a
// stranger did before it is.
func TestVerificationsBesideStamps(t *testing.T) {
	const first, second, stamped = 101, 102, 103 // marks
	for name, c := range map[string]struct {
		before uint64 // the mark that the stamp found
		want   proof
	}{
		"the store's own": {first, proof{mark: stamped}},
		"a stranger's":    {second, proof{mark: first}},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			generation, _ := proofOf(t, s, d)
			s.files.prove(d, generation, proof{mark: first, at: 1})
			_, was := proofOf(t, s, d)
			s.files.verify(d)
			s.files.restamped(d, c.before, stamped)
			s.files.prove(d, generation, provenAt(time.Now(), first))
			s.files.endVerify(d)
			_, p := proofOf(t, s, d)
			if p.mark != c.want.mark || p.strange != was.strange {
				t.Errorf("%+v is known, want %+v", p, c.want)
			}
		})
	}
}

// TestVerificationWithinAStamp ends between the two looks of the store that stamps the file.
func TestVerificationWithinAStamp(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	generation, was := proofOf(t, s, d)
	s.files.mu.Lock()
	s.files.index.lookup(d).stamped -= 2 * stampEvery
	s.files.mu.Unlock()
	if _, stamps := s.files.touch([]digest.Digest{d}, time.Now().Unix()); len(stamps) != 1 {
		t.Fatalf("to be stamped are %v", stamps)
	}
	s.files.prove(d, generation, provenAt(time.Now(), was.mark+1))
	if _, p := proofOf(t, s, d); p.strange != 0 {
		t.Error("the store's change is taken for a stranger's")
	}
	s.files.restamped(d, was.mark, was.mark+1)
	s.files.prove(d, generation, provenAt(time.Now(), was.mark+2))
	if _, p := proofOf(t, s, d); p.strange != 1 {
		t.Error("a stranger's change is taken for the store's")
	}
}
