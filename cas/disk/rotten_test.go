package disk

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
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

// wantVerdict fails unless v finds d damaged, or vouches for it.
func wantVerdict(t testing.TB, v *Vouching, d digest.Digest, isDamaged bool) {
	t.Helper()
	if isDamaged {
		wantDamaged(t, v.Wait(t.Context()), d)
	} else {
		wantVouched(t, v)
	}
}

// using returns a Vouching that has used ds, until the test ends.
func using(t testing.TB, s *Store, ds ...digest.Digest) *Vouching {
	t.Helper()
	v := s.verifier.Vouch()
	t.Cleanup(v.Close)
	for _, d := range ds {
		v.Used(d)
	}
	return v
}

// stampNext has the store note the next use of d in the times of its file.
func stampNext(s *Store, d digest.Digest) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.index.lookup(d).stamped -= 2 * stampEvery
}

// stamp has the store note a use of d in the times of its file.
func stamp(t testing.TB, s *Store, d digest.Digest) {
	t.Helper()
	stampNext(s, d)
	if !s.Contains(d) {
		t.Fatal("it is not there")
	}
}

// putSocket creates a socket, which cannot be opened as a file, at path.
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

// putVast makes an unverified blob that takes days to read.
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
