package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// TestPossessionSurvives opens a store that was closed, one that was not, and one whose file of
// holders is damaged.
func TestPossessionSurvives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := storeOpen(t, dir, Options{Isolate: true})
	a, b := holders.NameOf("a"), holders.NameOf("b")
	var ds []digest.Digest
	number := map[digest.Digest]int{}
	for i := range 3000 {
		d := storePut(t, s, fmt.Sprint("blob ", i))
		ds, number[d] = append(ds, d), i
		if err := s.possession.gain(d, []holders.Name{a, b}[i%2]); err != nil {
			t.Fatal(err)
		}
	}
	s.possession.write()
	killed := filepath.Join(t.TempDir(), "killed")
	if err := os.CopyFS(killed, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	count := func(dir string) (had [2]int) {
		t.Helper()
		s := storeOpen(t, dir, Options{Isolate: true})
		for i, n := range []holders.Name{a, b} {
			has, _ := s.possession.split(ds, n)
			had[i] = len(has)
			for _, d := range has {
				if number[d]%2 != i {
					t.Fatalf("%s has changed hands", d)
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return had
	}
	for range 2 {
		for _, dir := range []string{dir, killed} {
			if got := count(dir); got != [2]int{1500, 1500} {
				t.Errorf("%s: %d", dir, got)
			}
		}
	}
	file := filepath.Join(dir, "holders")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2]++
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := count(dir); got[0]+got[1] == 0 || got[0] >= 1500 || got[1] >= 1500 {
		t.Errorf("with a damaged file %d", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := count(dir); got != [2]int{} {
		t.Errorf("without a file %d", got)
	}
}

// TestPossessionIsWrittenLater: records that could not be written are written as soon as writing
// works again.
func TestPossessionIsWrittenLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := storeOpen(t, dir, Options{Isolate: true})
	a, p := holders.NameOf("a"), s.possession
	first, second := storePut(t, s, "first"), storePut(t, s, "second")
	if err := errors.Join(p.gain(first, a), p.file.Close()); err != nil {
		t.Fatal(err)
	}
	p.write()
	if !p.ailing {
		t.Fatal("nobody has noticed that the file cannot be written")
	}
	if err := p.gain(second, a); err != nil {
		t.Fatal(err)
	}
	p.write()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storeOpen(t, dir, Options{Isolate: true})
	if !s.possession.has(first, a) || !s.possession.has(second, a) {
		t.Error("what was gained before or after the fault is lost")
	}
}

// TestPossessionIsWrittenAnew while it changes.
func TestPossessionIsWrittenAnew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "blobs")
	s := storeOpen(t, dir, Options{Isolate: true})
	a := holders.NameOf("a")
	blob := func(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, "blob ", i)) }
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 4000 {
			if err := errors.Join(s.PutBytes(context.Background(), blob(i), fmt.Append(nil, "blob ", i)), s.possession.gain(blob(i), a)); err != nil {
				t.Error(err)
			}
			if i%7 == 0 {
				s.Evict(1)
			}
		}
	}()
	for running := true; running; {
		if err := s.possession.rewrite(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			running = false
		default:
		}
	}
	var want [4000]bool
	for i := range want {
		want[i] = s.possession.has(blob(i), a)
	}
	s.possession.write()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = storeOpen(t, dir, Options{Isolate: true})
	for i := range want {
		if got := s.possession.has(blob(i), a); got != want[i] {
			t.Fatalf("blob %d: %t, want %t", i, got, want[i])
		}
	}
}

// TestCrowdOfHolders has one customer hold blobs under as many instance names as allowed. Other
// customers must still be able to upload. The error for the customer's next name must not count as
// lack of space, which would evict other uploads.
func TestCrowdOfHolders(t *testing.T) {
	s := storeOpen(t, filepath.Join(t.TempDir(), "blobs"), Options{Isolate: true})
	const blobs = 256 // each with few holders: to add one copies the others
	var ds []digest.Digest
	for i := range blobs {
		ds = append(ds, storePut(t, s, fmt.Sprint("blob ", i)))
	}
	for i := range holders.MaxNames / 2 {
		if err := s.possession.gain(ds[i%blobs], holders.NameOf(fmt.Sprint("a/", i))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.possession.gain(ds[0], holders.NameOf("a/next")); !errors.Is(err, cas.ErrTooManyHolders) || errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("one more of the same customer: %v", err)
	}
	if err := s.possession.gain(ds[0], holders.NameOf("b")); err != nil {
		t.Errorf("another customer: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
