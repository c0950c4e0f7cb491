package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// given are folders for new files.
type given []string

func (g *given) Next() string {
	next := (*g)[0]
	if len(*g) > 1 {
		*g = (*g)[1:]
	}
	return next
}

// TestPlaces: files are created where places says, if that folder exists, and their blobs are
// verified as usual.
func TestPlaces(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	there := filepath.Join(s.TempDir(), "there")
	if err := os.Mkdir(there, 0o700); err != nil {
		t.Fatal(err)
	}
	s.files.scatter = &given{there, filepath.Join(s.TempDir(), "gone"), filepath.Join(t.TempDir(), "gone", "too")}
	for i := range 4 {
		text := fmt.Append(nil, "text ", i)
		d := digest.Of(digest.SHA256, text)
		if err := s.PutBytes(t.Context(), d, text); err != nil {
			t.Fatal(err)
		}
		if !IsVerified(s, d) {
			t.Errorf("blob %d is not verified", i)
		}
	}
	w, err := newSpaceWriter(s.files, digest.Of(digest.SHA256, []byte("unfinished")))
	if err != nil {
		t.Fatal(err)
	}
	s.files.scatter = &given{there}
	v, err := newSpaceWriter(s.files, digest.Of(digest.SHA256, []byte("unfinished too")))
	if err != nil {
		t.Fatal(err)
	}
	if at := filepath.Dir(v.file.Name()); at != there {
		t.Errorf("a file is made in %s", at)
	}
	if at := filepath.Dir(w.file.Name()); at != s.TempDir() {
		t.Errorf("a file without its folder is made in %s", at)
	}
	w.Drop()
	v.Drop()
}

// TestSpread: a Store that is spread takes blobs as others do, and nothing of the last time is left
// when it opens.
func TestSpread(t *testing.T) {
	dir := t.TempDir()
	var last []os.DirEntry
	for range 2 {
		s, err := Open(dir, Options{Spread: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range last {
			if _, err := os.Stat(filepath.Join(s.TempDir(), e.Name())); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is left of the last time: %v", e.Name(), err)
			}
		}
		text := []byte("text")
		d := digest.Of(digest.SHA256, text)
		if err := s.PutBytes(t.Context(), d, text); err != nil {
			t.Fatal(err)
		}
		if !s.Has(d) {
			t.Error("it is not there")
		}
		w, err := newSpaceWriter(s.files, digest.Of(digest.SHA256, []byte("unfinished")))
		if err != nil {
			t.Fatal(err)
		}
		if last, err = os.ReadDir(s.TempDir()); err != nil || len(last) == 0 {
			t.Fatalf("there is no unfinished file: %v", err)
		}
		if err := errors.Join(w.file.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
}
