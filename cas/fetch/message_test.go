package fetch

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestReadMessage: a small blob is fetched once and is not in the store; a large one is.
func TestReadMessage(t *testing.T) {
	large := strings.Repeat("x", smallMessage+1)
	u, ds := storeNewUpstream("small", large, "")
	s := storeOpen(t, t.TempDir(), storeOptions{})
	r := s.Through(u)
	for range 2 {
		for i, want := range []string{"small", large, ""} {
			if b, err := r.ReadMessage(t.Context(), ds[i]); err != nil || string(b) != want {
				t.Errorf("message %d: %.20q, %v", i, b, err)
			}
		}
	}
	if sizes := u.storeSizes(); len(sizes) != 2 {
		t.Errorf("calls of Fetch for %v blobs", sizes)
	}
	if s.Contains(ds[0]) || !s.Contains(ds[1]) {
		t.Error("the small one is in the store, or the large one is not")
	}
	if blobs, bytes := r.Fetched(); blobs != 2 || bytes != int64(len("small")+len(large)) {
		t.Errorf("%d blobs of %d bytes were fetched", blobs, bytes)
	}
}

// TestReadMessageFails: a missing message, or one of another type, is an error each time and is not
// kept.
func TestReadMessageFails(t *testing.T) {
	u, ds := storeNewUpstream("other")
	absent := digest.Of(digest.SHA256, []byte("absent"))
	lies := digest.Of(digest.SHA256, []byte("lies!"))
	u.texts[lies] = u.texts[ds[0]]
	s := storeOpen(t, t.TempDir(), storeOptions{})
	r := s.Through(u)
	for range 2 {
		var missing *cas.MissingError
		if _, err := r.ReadMessage(t.Context(), absent); !errors.As(err, &missing) || missing.Digests[0] != absent {
			t.Errorf("absent: %v", err)
		}
		if _, err := r.ReadMessage(t.Context(), lies); !errors.Is(err, cas.ErrCorrupt) {
			t.Errorf("lies: %v", err)
		}
	}
	silent := storeFetchFunc(func(func(digest.Digest, io.Reader) error) error { return nil })
	if _, err := s.Through(silent).ReadMessage(t.Context(), absent); !errors.As(err, new(*cas.MissingError)) {
		t.Errorf("not delivered: %v", err)
	}
}
