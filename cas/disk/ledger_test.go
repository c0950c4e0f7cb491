package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// proofOf returns the generation and the proof of d.
func proofOf(t *testing.T, s *Store, d digest.Digest) (generation uint64, p proof) {
	t.Helper()
	generation, p, ok := s.files.look(d)
	if !ok {
		t.Fatalf("%s is not there", d)
	}
	return generation, p
}

// evictAll evicts everything that is not pinned, and fails if d remains.
func evictAll(t *testing.T, s *Store, d digest.Digest) {
	t.Helper()
	s.Evict(1 << 40)
	if s.Has(d) {
		t.Fatal("it was not evicted")
	}
}

// TestFilesOfAKeyAreToldApart: knowledge about a removed file is not used for the file that came
// after it.
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
	if n := s.files.believe([]proven{{d, proof{at: 1, mark: known.mark + 1}}}); n != 0 {
		t.Error("a note of another file is believed")
	}
	if s.files.proveRead(d, before, was, 0) {
		t.Error("somebody is asked to look at the old file")
	}
	if _, p := proofOf(t, s, d); p != known {
		t.Errorf("%+v is known of the new file, was %+v", p, known)
	}
}

// TestNobodysFiles: reports about a file that has been removed meanwhile have no effect.
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

// TestClosedStore: a closed store has no blobs, whatever is on the disk.
func TestClosedStore(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	notes := filepath.Join(s.Dir(), "verified")
	if err := os.Remove(notes); err != nil {
		t.Fatal(err)
	}
	s.files.proved = true
	s.notes.write()
	if _, err := os.Lstat(notes); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("notes are written into what may be another's folder: %v", err)
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
	if n := s.files.believe([]proven{{d, older}}); n != 0 {
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

// TestVerificationsBesideStamps: the store changes the times of a file while it is read. That must
// not count as a change by a stranger; an earlier change by a stranger must count.
func TestVerificationsBesideStamps(t *testing.T) {
	const first, second, stamped = 101, 102, 103 // marks
	for name, c := range map[string]struct {
		stamps [][2]uint64 // the marks that each found and left; 0: unknown
		want   proof
	}{
		"the store's own": {[][2]uint64{{first, stamped}}, proof{mark: stamped}},
		"two of them":     {[][2]uint64{{first, second}, {second, stamped}}, proof{mark: stamped}},
		"a stranger's":    {[][2]uint64{{second, stamped}}, proof{mark: first}},
		"nobody knows":    {[][2]uint64{{first, 0}}, proof{mark: first}},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			generation, _ := proofOf(t, s, d)
			s.files.prove(d, generation, proof{mark: first, at: 1})
			_, was := proofOf(t, s, d)
			s.files.verify(d)
			for _, marks := range c.stamps {
				s.files.restamped(d, marks[0], marks[1])
			}
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
	stampNext(s, d)
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

// TestWalkInPieces yields all, and can be ended early.
func TestWalkInPieces(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	for i := range 5 {
		storePut(t, s, fmt.Sprint(i))
	}
	seen := map[digest.Digest]bool{}
	for chunk := range s.files.proofs(2) {
		if len(chunk) > 2 {
			t.Errorf("the lock is held for %d", len(chunk))
		}
		for _, one := range chunk {
			seen[one.key] = true
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d of 5 blobs were seen", len(seen))
	}
	pieces := 0
	for range s.files.proofs(2) {
		pieces++
		break
	}
	if pieces != 1 || s.Stats().Blobs != 5 {
		t.Errorf("%d pieces", pieces)
	}
}

// TestEvictionOfAShare: on a full disk, an eviction removes a little more than necessary.
func TestEvictionOfAShare(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	for i := range 2 * fullShare {
		storePut(t, s, fmt.Sprintf("%03d", i))
	}
	victims, made := s.files.evict(1, fullShare)
	s.files.remove(victims)
	if len(victims) != 2 || made != 6 {
		t.Errorf("%d went, of %d bytes", len(victims), made)
	}
}

// TestErrorsOfDisks: a quota is a full disk, and a file system that is only read, or fails, is not
// the blob's fault.
func TestErrorsOfDisks(t *testing.T) {
	if !diskFull(syscall.EDQUOT) || !diskFull(syscall.ENOSPC) || diskFull(syscall.EIO) {
		t.Error("a full disk is not known")
	}
	for err, want := range map[error]bool{syscall.EROFS: true, syscall.EPERM: true, syscall.EIO: true, syscall.EUCLEAN: true, syscall.ENOENT: false} {
		if got := errors.Is(unwritable(err), cas.ErrUnwritable); got != want {
			t.Errorf("%v is of a disk that cannot be written: %t", err, got)
		}
	}
}

// TestTwoBringOneBlob: the second file of a blob is discarded, and users of the first one have used
// the file that stays.
func TestTwoBringOneBlob(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	text := []byte("text")
	d := digest.Of(digest.SHA256, text)
	v := s.verifier.Vouch()
	defer v.Close()
	var writers []cas.Writer
	for range 2 {
		w, err := s.Create(d)
		if err == nil {
			_, err = w.Write(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		writers = append(writers, w)
	}
	for _, w := range writers {
		if err := w.Keep(context.Background()); err != nil {
			t.Fatal(err)
		}
		s.Release(d)
		v.Used(d)
	}
	wantVouched(t, v)
	storeWantConsistent(t, s)
}

// TestOpenBlobIsAUse which the next start knows of.
func TestOpenBlobIsAUse(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	long := time.Now().Add(-1000 * time.Hour)
	if err := os.Chtimes(s.files.path(d), long, long); err != nil {
		t.Fatal(err)
	}
	s.files.mu.Lock()
	s.files.index.lookup(d).stamped = long.Unix()
	s.files.mu.Unlock()
	file, err := s.OpenBlob(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("it was used at %v, %v", info.ModTime(), err)
	}
}

// TestFilesOfOthers: a foreign file at the path of a blob does not count as the blob.
func TestFilesOfOthers(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := digest.Of(digest.SHA256, []byte("text"))
	place := s.files.path(d)
	if err := errors.Join(os.MkdirAll(filepath.Dir(place), 0o700), os.WriteFile(place, []byte("tent"), 0o600)); err != nil {
		t.Fatal(err)
	}
	view := s.Peek(func(digest.Digest) { t.Error("it is said to be opened") })
	if _, err := view.OpenBlob(t.Context(), d); !errors.As(err, new(*cas.MissingError)) {
		t.Errorf("opened: %v", err)
	}
}

// TestFolderInTheBlobsPlace: it may have the size of the blob.
func TestFolderInTheBlobsPlace(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	dir := filepath.Join(s.TempDir(), "dir")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	d := storePut(t, s, string(make([]byte, max(1, info.Size()))))
	if err := errors.Join(os.Remove(s.files.path(d)), os.Rename(dir, s.files.path(d))); err != nil {
		t.Fatal(err)
	}
	if file, err := s.OpenBlob(t.Context(), d); !errors.As(err, new(*cas.MissingError)) {
		t.Errorf("opened %v, %v", file, err)
	}
}

// TestTheEmptyBlobIsTaken: the empty blob is accepted and can be opened, whatever happened to its
// file.
func TestTheEmptyBlobIsTaken(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	empty := digest.SHA256.Empty()
	path := filepath.Join(s.TempDir(), "output")
	for range 2 {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		copied, err := s.TakeCopy(t.Context(), file, digest.SHA256)
		if err := errors.Join(err, file.Close()); err != nil || copied != empty {
			t.Errorf("copied %s, %v", copied, err)
		}
		taken, err := s.Take(t.Context(), path, digest.SHA256)
		if err != nil || taken != empty {
			t.Errorf("took %s, %v", taken, err)
		}
		blob, err := s.OpenBlob(t.Context(), empty)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(blob); err != nil || len(b) > 0 {
			t.Errorf("read %q, %v", b, err)
		}
		_ = blob.Close()
		// The second time it is damaged.
		if err := errors.Join(os.Remove(s.files.emptyPath()), os.WriteFile(s.files.emptyPath(), []byte("x"), 0o444)); err != nil {
			t.Fatal(err)
		}
	}
	if names := storeTempFiles(t, s); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestRoomOfShorterOutputs: if a file became shorter while it was copied, the difference is
// released. So is the pin of a file that cannot be removed.
func TestRoomOfShorterOutputs(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	path := filepath.Join(s.TempDir(), "output")
	if err := os.WriteFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d, err := s.takeCopy(t.Context(), file, digest.SHA256, 1000)
	if err != nil || d != digest.Of(digest.SHA256, []byte("text")) {
		t.Fatalf("%s, %v", d, err)
	}
	if err := s.discard(path+"-none", d); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("discarded what is not there: %v", err)
	}
	if got := s.Stats(); got.PinnedBytes != 0 || got.ReservedBytes != 0 {
		t.Errorf("%+v", got)
	}
}

// TestUnstickWhatIsNotStuck leaves it alone.
func TestUnstickWhatIsNotStuck(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d, coming := storePut(t, s, "text"), digest.Of(digest.SHA256, []byte("coming"))
	if wait, exists := s.files.admit(coming); wait != nil || exists {
		t.Fatal("it is there already")
	}
	s.files.unstick(d)
	s.files.unstick(coming)
	s.files.abort(coming)
	if got := s.Stats(); storeText(s, d) != "text" || got.PinnedBytes != 0 || got.AsideBlobs != 0 {
		t.Errorf("%q, %+v", storeText(s, d), got)
	}
}

// TestEvictionWithinAStamp: that the store has just changed the times of a file is no stranger's
// change.
func TestEvictionWithinAStamp(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	v := using(t, s, d)
	stampNext(s, d)
	if _, stamps := s.files.touch([]digest.Digest{d}, time.Now().Unix()); len(stamps) != 1 {
		t.Fatalf("to be stamped are %v", stamps)
	}
	long := time.Now().Add(-1000 * time.Hour)
	if err := os.Chtimes(s.files.path(d), long, long); err != nil {
		t.Fatal(err)
	}
	evictAll(t, s, d)
	wantVouched(t, v)
	unverified := storePut(t, s, "other")
	forget(t, s, unverified)
	evictAll(t, s, unverified)
	v.Used(unverified) // which it was not before it went
	wantVouched(t, v)
	if got := s.Stats().DamagedBlobs; got != 0 {
		t.Errorf("%d blobs are damaged", got)
	}
}
