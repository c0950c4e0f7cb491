package castest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Store is the interface that cas/fetch needs, which documents each method.
type Store interface {
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
	ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error)
	ReadLocal(d digest.Digest) (b []byte, ok bool)
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	Has(d digest.Digest) bool
	Retain(d digest.Digest) bool
	Release(d digest.Digest)
	Put(ctx context.Context, d digest.Digest, r io.Reader) error
	PutPinned(ctx context.Context, d digest.Digest, r io.Reader) error
	Receive(d digest.Digest) cas.Incoming
}

// StoreBytes is the limit of the stores that TestStore needs.
const StoreBytes = 1000

// TestStore runs the suite. open returns an empty store of at most StoreBytes, which ends with the
// test.
func TestStore(t *testing.T, open func(t *testing.T) Store) {
	for what, test := range map[string]func(t *testing.T, s Store){
		"has nothing at first": storeIsEmpty,
		"keeps blobs":          storeKeeps,
		"refuses":              storeRefuses,
		"evicts":               storeEvicts,
		"receives":             storeReceives,
		"gives up":             storeGivesUp,
	} {
		t.Run(what, func(t *testing.T) { test(t, open(t)) })
	}
}

func digestOf(text string) digest.Digest { return digest.Of(digest.SHA256, []byte(text)) }

// want fails the test unless s has d with that text, or, if text is empty, lacks d.
func want(t *testing.T, s Store, d digest.Digest, text string) {
	t.Helper()
	there := text != ""
	if s.Has(d) != there {
		t.Errorf("%s: has is %t", d, !there)
	}
	missing, err := s.FindMissing(t.Context(), []digest.Digest{d})
	if err != nil || slices.Contains(missing, d) == there {
		t.Errorf("%s: missing are %v, %v", d, missing, err)
	}
	b, ok := s.ReadLocal(d)
	if ok != there || string(b) != text {
		t.Errorf("%s: local is %q, %t", d, b, ok)
	}
	b, err = s.ReadBlob(t.Context(), d)
	file, openErr := s.OpenBlob(t.Context(), d)
	if openErr == nil {
		defer file.Close()
	}
	if !there {
		for _, err := range []error{err, openErr} {
			var named *cas.MissingError
			if !errors.Is(err, cas.ErrNotFound) || !errors.As(err, &named) || !slices.Equal(named.Digests, []digest.Digest{d}) {
				t.Errorf("%s is not there: %v", d, err)
			}
		}
		return
	}
	if err != nil || string(b) != text {
		t.Errorf("%s: read %q, %v", d, b, err)
	}
	if openErr != nil {
		t.Errorf("%s: %v", d, openErr)
		return
	}
	if b, err := io.ReadAll(file); err != nil || string(b) != text {
		t.Errorf("%s: the file has %q, %v", d, b, err)
	}
}

func put(t *testing.T, s Store, text string) digest.Digest {
	t.Helper()
	d := digestOf(text)
	if err := s.Put(t.Context(), d, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	return d
}

func storeIsEmpty(t *testing.T, s Store) {
	want(t, s, digestOf("absent"), "")
	if s.Retain(digestOf("absent")) {
		t.Error("what is not there is retained")
	}
	for _, fn := range digest.Functions() {
		d := fn.Empty()
		if !s.Has(d) || !s.Retain(d) {
			t.Error("the empty blob is not there")
		}
		s.Release(d)
		if b, err := s.ReadBlob(t.Context(), d); len(b) > 0 || err != nil {
			t.Errorf("the empty blob is %q, %v", b, err)
		}
		if err := s.Put(t.Context(), d, strings.NewReader("")); err != nil {
			t.Error(err)
		}
	}
}

func storeKeeps(t *testing.T, s Store) {
	a, b := put(t, s, "a"), put(t, s, "b")
	want(t, s, a, "a")
	want(t, s, b, "b")
	put(t, s, "a")
	want(t, s, a, "a")
	absent := digestOf("absent")
	missing, err := s.FindMissing(t.Context(), []digest.Digest{b, absent, a, digest.SHA256.Empty()})
	if err != nil || !slices.Equal(missing, []digest.Digest{absent}) {
		t.Errorf("missing are %v, %v", missing, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.ReadBlob(ctx, a); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was cancelled: %v", err)
	}
	if err := s.Put(ctx, absent, strings.NewReader("absent")); !errors.Is(err, context.Canceled) {
		t.Errorf("a put that was cancelled: %v", err)
	}
	want(t, s, absent, "")
}

func storeRefuses(t *testing.T, s Store) {
	d := digestOf("the text")
	for _, other := range []string{"the tex", "the text and more", "the tent", ""} {
		for _, put := range []func(context.Context, digest.Digest, io.Reader) error{s.Put, s.PutPinned} {
			if err := put(t.Context(), d, strings.NewReader(other)); !errors.Is(err, cas.ErrCorrupt) {
				t.Errorf("%q: %v", other, err)
			}
		}
	}
	want(t, s, d, "")
	broken := errors.New("the line is broken")
	if err := s.Put(t.Context(), d, io.MultiReader(strings.NewReader("the "), failing{broken})); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
	large := strings.Repeat("x", StoreBytes+1)
	if err := s.Put(t.Context(), digestOf(large), strings.NewReader(large)); !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("larger than the store: %v", err)
	}
	full := strings.Repeat("y", StoreBytes) // nothing of all that has taken room
	want(t, s, put(t, s, full), full)
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// storeEvicts fills the store: the least recently used blobs are evicted, retained ones stay.
func storeEvicts(t *testing.T, s Store) {
	text := func(c string) string { return strings.Repeat(c, StoreBytes/4) }
	old := put(t, s, text("a"))
	if err := s.PutPinned(t.Context(), digestOf(text("b")), strings.NewReader(text("b"))); err != nil {
		t.Fatal(err)
	}
	kept, used := digestOf(text("b")), put(t, s, text("c"))
	put(t, s, text("d"))
	if !s.Retain(kept) {
		t.Fatal("what is there is not retained")
	}
	file, err := s.OpenBlob(t.Context(), old)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := s.FindMissing(t.Context(), []digest.Digest{used, digestOf(text("d"))}); err != nil { // a use
		t.Fatal(err)
	}
	put(t, s, text("e"))
	want(t, s, old, "")
	if b, err := io.ReadAll(file); err != nil || string(b) != text("a") {
		t.Errorf("the file that was open has %d bytes, %v", len(b), err)
	}
	s.Release(kept) // it is retained once more
	for _, c := range []string{"f", "g", "h", "i"} {
		put(t, s, text(c))
	}
	want(t, s, kept, text("b"))
	want(t, s, used, "")
	s.Release(kept)
	for _, c := range []string{"j", "k", "l", "m"} {
		put(t, s, text(c))
	}
	want(t, s, kept, "")
}

// storeReceives writes a blob in pieces, the last one first.
func storeReceives(t *testing.T, s Store) {
	text := strings.Repeat("0123456789", StoreBytes/20)
	d := digestOf(text)
	in := s.Receive(d)
	for at := len(text) - 10; at >= 0; at -= 10 {
		if n, err := in.WriteAt([]byte(text[at:at+10]), int64(at)); n != 10 || err != nil {
			t.Fatalf("%d bytes at %d, %v", n, at, err)
		}
		b := make([]byte, 10)
		if _, err := in.ReadAt(b, int64(at)); err != nil || string(b) != text[at:at+10] {
			t.Fatalf("%q at %d, %v", b, at, err)
		}
	}
	want(t, s, d, "")
	if err := in.Keep(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, s, d, text)
	for c := range 8 { // it is retained
		put(t, s, strings.Repeat(string(rune('a'+c)), StoreBytes/4))
	}
	want(t, s, d, text)
	s.Release(d)
	b := make([]byte, len(text))
	if _, err := in.ReadAt(b, 0); err != nil || !bytes.Equal(b, []byte(text)) {
		t.Errorf("after it was kept: %v", err)
	}
	in.Close()
}

// storeGivesUp drops an incomplete blob, whose space is then free, and one that never fits.
func storeGivesUp(t *testing.T, s Store) {
	full := strings.Repeat("x", StoreBytes)
	in := s.Receive(digestOf(full))
	if _, err := in.WriteAt([]byte(full[:StoreBytes/2]), 0); err != nil {
		t.Fatal(err)
	}
	in.Drop()
	in.Close()
	want(t, s, digestOf(full), "")
	want(t, s, put(t, s, full), full)
	none := s.Receive(digestOf("nothing comes"))
	none.Drop()
	none.Close()
	large := s.Receive(digestOf(full + "x"))
	var err error
	for at := 0; at < StoreBytes+1 && err == nil; at += 7 {
		_, err = large.WriteAt(make([]byte, min(7, StoreBytes+1-at)), int64(at))
	}
	if !errors.Is(err, cas.ErrNoSpace) {
		t.Errorf("larger than the store: %v", err)
	}
	large.Drop()
	large.Close()
}
