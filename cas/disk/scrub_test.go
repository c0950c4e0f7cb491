package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/scrub"
)

// scrubOnce has a Scrubber of s and a make the pass that is due, and returns how it was.
func scrubOnce(t *testing.T, s *Store, a *Actions) scrub.Status {
	t.Helper()
	scrubber, err := NewScrubber(s, a, scrub.Options{Rate: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		scrubber.Run(ctx)
	}()
	for scrubber.Status().Ended.IsZero() && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
	st := scrubber.Status()
	if st.Ended.IsZero() {
		t.Fatal("the pass did not end")
	}
	if err := os.Remove(filepath.Join(s.Dir(), "scrub")); err != nil {
		t.Error(err)
	}
	return st
}

// damages change the file of a blob in one way.
var damages = map[string]func(path string) error{
	"flipped": func(path string) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt([]byte{'!'}, 3)
		return errors.Join(err, f.Close())
	},
	"cut": func(path string) error { return os.Truncate(path, 3) },
	"linked": func(path string) error {
		return errors.Join(os.Remove(path), os.Symlink("/etc/hostname", path))
	},
	"a folder": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) },
}

func TestScrubSetsDamagedBlobsAside(t *testing.T) {
	s, err := Open(t.TempDir(), Options{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	wrong := map[digest.Digest]string{}
	var right []digest.Digest
	for i := range 300 {
		for _, fn := range []digest.Function{digest.SHA256, digest.BLAKE3} {
			b := fmt.Appendf(nil, "blob %d", i)
			d := digest.Of(fn, b)
			if err := s.PutBytes(t.Context(), d, b); err != nil {
				t.Fatal(err)
			}
			right = append(right, d)
		}
	}
	time.Sleep(20 * time.Millisecond) // longer than the resolution of file times
	for kind, damage := range damages {
		d := right[0]
		right = right[1:]
		wrong[d] = kind
		if err := damage(filepath.Join(s.Dir(), BlobPath(d))); err != nil {
			t.Fatal(err)
		}
	}
	if st := scrubOnce(t, s, nil); st.Damaged != int64(len(wrong)) {
		t.Errorf("%d blobs are damaged, found %+v", len(wrong), st)
	}
	for d, kind := range wrong {
		if s.Contains(d) {
			t.Errorf("the blob that was %s is still there", kind)
		}
	}
	for _, d := range right {
		if !s.Contains(d) {
			t.Errorf("%s is gone", d)
		}
	}
	if st := scrubOnce(t, s, nil); st.Damaged != 0 {
		t.Errorf("afterwards: %+v", st)
	}
}

// TestScrubNotesWhatIsGone has files of blobs removed behind the store's back, one by one and a
// whole shard: afterwards they are missing, for clients to bring them again, and that is said once.
func TestScrubNotesWhatIsGone(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	s := storeOpen(t, t.TempDir(), Options{MaxBytes: 1 << 20, Logger: zap.New(core)})
	shards := map[string][]digest.Digest{}
	var all []digest.Digest
	for i := range 300 {
		d := storePut(t, s, fmt.Sprintf("blob %d", i))
		all = append(all, d)
		shard := path.Dir(BlobPath(d))
		shards[shard] = append(shards[shard], d)
	}
	gone, affected := map[digest.Digest]bool{}, map[string]bool{}
	lose := func(name string, ds ...digest.Digest) {
		if err := os.RemoveAll(filepath.Join(s.Dir(), name)); err != nil {
			t.Fatal(err)
		}
		for _, d := range ds {
			gone[d], affected[path.Dir(BlobPath(d))] = true, true
		}
	}
	for _, d := range all[:3] {
		lose(BlobPath(d), d)
	}
	whole := path.Dir(BlobPath(all[3]))
	lose(whole, shards[whole]...)
	if st := scrubOnce(t, s, nil); st.Damaged != int64(len(gone)) {
		t.Errorf("%d blobs are gone, found %+v", len(gone), st)
	}
	missing, err := s.FindMissing(t.Context(), all)
	if err != nil || len(missing) != len(gone) {
		t.Errorf("%d blobs are missing, want %d, %v", len(missing), len(gone), err)
	}
	for _, d := range missing {
		if !gone[d] {
			t.Errorf("%s is missing", d)
		}
	}
	if st := s.Stats(); st.DamagedBlobs != int64(len(gone)) || st.Blobs != int64(len(all)-len(gone)) {
		t.Errorf("%+v", st)
	}
	const line = "files of blobs are gone from the store; the blobs are missing"
	if n := logs.FilterMessage(line).Len(); n != len(affected) {
		t.Errorf("%d lines tell of %d shards", n, len(affected))
	}
	for i := range all {
		storePut(t, s, fmt.Sprintf("blob %d", i))
	}
	if st := scrubOnce(t, s, nil); st.Damaged != 0 || logs.FilterMessage(line).Len() != len(affected) {
		t.Errorf("when they are back: %+v", st)
	}
	storeWantConsistent(t, s)
}

// TestScrubReadsWhatMayBeWrong: a pass reads blobs that were last verified before the pass, and
// blobs that changed after a verification during the pass, even if the store has noticed the
// change.
func TestScrubReadsWhatMayBeWrong(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	old, changed, fine := storePut(t, s, "old"), storePut(t, s, "changed"), storePut(t, s, "fine")
	rotSilently(t, s, old)
	s.files.mu.Lock()
	s.files.index.lookup(old).proof.at -= 3600
	s.files.mu.Unlock()
	rot(t, s, changed)
	seen := storePut(t, s, "seen")
	rot(t, s, seen)
	settle(t, s, seen)
	s.verifier.notice(seen)
	began := time.Now().Add(-time.Minute)
	for d, want := range map[digest.Digest]bool{old: false, changed: false, seen: false, fine: true} {
		if got := s.verifier.verifiedSince(d, began); got != want {
			t.Errorf("%s was verified since the pass began: %t", d, got)
		}
	}
	if st := scrubOnce(t, s, nil); st.Damaged != 3 {
		t.Errorf("%+v", st)
	}
}

// TestScrubVerifies has blobs that were never verified since the start be so after a pass, and
// leaves their order of use alone.
func TestScrubVerifies(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(dir, Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var all []digest.Digest
	for i := range 100 {
		b := make([]byte, 1<<10)
		b[0] = byte(i)
		all = append(all, digest.Of(digest.SHA256, b))
		if err := s.PutBytes(t.Context(), all[i], b); err != nil {
			t.Fatal(err)
		}
	}
	defer func() { _ = s.Close() }()
	for _, d := range all {
		if generation, _, ok := s.files.look(d); ok {
			s.files.prove(d, generation, proof{})
		}
	}
	began := time.Now()
	if st := scrubOnce(t, s, nil); st.Damaged != 0 || st.Files != 100 || st.Bytes != 100<<10 {
		t.Errorf("the first pass: %+v", st)
	}
	for _, d := range all {
		if _, known, _ := s.files.look(d); int64(known.at) < began.Unix() || !s.verifier.verifiedSince(d, began) {
			t.Fatalf("%s is not verified after a pass", d)
		}
	}
	s.files.limit(50 << 10)
	for i, d := range all {
		if _, _, ok := s.files.look(d); ok != (i >= 50) {
			t.Fatalf("blob %d of 100, of which the older half had to go, is there: %v", i, ok)
		}
	}
}

func TestScrubRemovesDamagedResults(t *testing.T) {
	s, err := Open(t.TempDir(), Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, err := OpenActions(t.TempDir(), ActionsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	of := func(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }
	for i := range 20 {
		if err := a.Put(t.Context(), "", of(i), &repb.ActionResult{ExitCode: int32(i)}); err != nil {
			t.Fatal(err)
		}
	}
	path := func(i int) string { return a.files.path(keyOfAction("", of(i)).Digest) }
	for i, damage := range []func(string) error{damages["flipped"], damages["cut"], damages["linked"]} {
		if err := damage(path(i)); err != nil {
			t.Fatal(err)
		}
	}
	// The last byte is the exit code, which alone no reader would doubt.
	b, err := os.ReadFile(path(3))
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := errors.Join(os.Chmod(path(3), 0o600), os.WriteFile(path(3), b, 0o600)); err != nil {
		t.Fatal(err)
	}
	if st := scrubOnce(t, s, a); st.Damaged != 4 || st.Files != 20 {
		t.Errorf("got %+v", st)
	}
	for i := range 20 {
		_, err := a.Get(t.Context(), "", of(i))
		if i < 4 != errors.Is(err, cas.ErrNotFound) {
			t.Errorf("result %d: %v", i, err)
		}
		if _, err := os.Lstat(path(i)); i < 4 != errors.Is(err, os.ErrNotExist) {
			t.Errorf("file of result %d: %v", i, err)
		}
	}
}

// TestNotesFromTheFuture: if the clock was set back, earlier verifications do not count. Reading a
// whole blob verifies it again.
func TestNotesFromTheFuture(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	ahead := func() {
		s.files.mu.Lock()
		defer s.files.mu.Unlock()
		s.files.index.lookup(d).proof.at += 400 * 24 * 3600
	}
	for name, verify := range map[string]func(){
		"a scrub": func() {
			if st := scrubOnce(t, s, nil); st.Files != 1 || st.Bytes != 4 {
				t.Errorf("the pass: %+v", st)
			}
		},
		"a read": func() {
			if _, err := s.ReadBlob(t.Context(), d); err != nil {
				t.Error(err)
			}
		},
	} {
		ahead()
		verify()
		if _, known, _ := s.files.look(d); !s.verifier.fresh(known) {
			t.Errorf("after %s it was verified %s ago", name, known.age())
		}
	}
}
