package disk

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// age has the store not know any more when d was verified, but know its file.
func age(s *Store, d digest.Digest) {
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	s.files.index.lookup(d).proof.at = 0
}

// TestVerificationGoesOn: a blob that takes longer to read than its client waits is verified when
// the client comes again.
func TestVerificationGoesOn(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, s *Store, d digest.Digest) error{
		"upload": func(ctx context.Context, s *Store, d digest.Digest) error {
			_, err := s.verifier.ContainsSound(ctx, d)
			return err
		},
		"bytes": func(ctx context.Context, s *Store, d digest.Digest) error {
			return s.PutBytes(ctx, d, []byte("text"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			d := storePut(t, s, "text")
			age(s, d)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			// The verification may end before the check of ctx.
			if err := ask(ctx, s, d); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			await(t, "its verification", func() bool {
				_, known, _ := s.files.look(d)
				return s.verifier.fresh(known)
			})
			await(t, "its pin to go", func() bool { return s.Stats().PinnedBytes == 0 })
		})
	}
}

// TestVerificationsThatGoOnAreFew: each keeps its blob in the store.
func TestVerificationsThatGoOnAreFew(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	d := storePut(t, s, "text")
	age(s, d)
	s.verifier.checks.carried = maxCarried
	s.verifier.carryOn(d)
	if _, known, _ := s.files.look(d); s.verifier.fresh(known) || s.Stats().PinnedBytes > 0 {
		t.Errorf("verified: %t, %d bytes are pinned", s.verifier.fresh(known), s.Stats().PinnedBytes)
	}
}

func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !there(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// TestFindUnsound: a blob that the kernel knows to have changed is reported as missing. A stale
// blob is reported as present only if the caller accepts that.
func TestFindUnsound(t *testing.T) {
	for what, c := range map[string]struct {
		harm                func(t *testing.T, s *Store, d digest.Digest)
		unsound, unverified bool // is reported at once; with stale
	}{
		"nothing": {func(*testing.T, *Store, digest.Digest) {}, false, false},
		"old":     {func(_ *testing.T, s *Store, d digest.Digest) { age(s, d) }, false, false},
		"touched": {func(t *testing.T, s *Store, d digest.Digest) {
			if err := os.Chmod(s.files.path(d), 0o400); err != nil {
				t.Fatal(err)
			}
		}, false, false},
		"rot":     {func(t *testing.T, s *Store, d digest.Digest) { rot(t, s, d) }, true, true},
		"removed": {func(t *testing.T, s *Store, d digest.Digest) { _ = os.Remove(s.files.path(d)) }, true, true},
		"short": {func(t *testing.T, s *Store, d digest.Digest) {
			if err := os.Truncate(s.files.path(d), 1); err != nil {
				t.Fatal(err)
			}
		}, true, true},
		"silent rot of late": {func(t *testing.T, s *Store, d digest.Digest) { rotSilently(t, s, d) }, false, false},
		"silent rot of old": {func(t *testing.T, s *Store, d digest.Digest) {
			rotSilently(t, s, d)
			age(s, d)
		}, false, true},
	} {
		for _, stale := range []bool{false, true} {
			for _, isolated := range []bool{false, true} {
				s := storeOpen(t, t.TempDir(), Options{Isolate: isolated})
				put := func(text string) digest.Digest {
					d := digest.Of(digest.SHA256, []byte(text))
					if err := s.Of("i").PutBytes(t.Context(), d, []byte(text)); err != nil {
						t.Fatal(err)
					}
					return d
				}
				d, fine, absent := put("a blob"), put("another"), digest.Of(digest.SHA256, []byte("absent"))
				c.harm(t, s, d)
				want := []digest.Digest{absent}
				if !stale && c.unsound || stale && c.unverified {
					want = append(want, d)
				}
				var blobs cas.Content = s.Of("i")
				got, err := blobs.FindUnsound(t.Context(), []digest.Digest{absent, fine, d, digest.SHA256.Empty()}, stale)
				if err != nil || !slices.Equal(got, want) {
					t.Errorf("%s, stale %t, isolated %t: got %v, %v; want %v", what, stale, isolated, got, err, want)
				}
				if blobs.Contains(d) == slices.Contains(want, d) {
					t.Errorf("%s, stale %t, isolated %t: it is there: %t", what, stale, isolated, blobs.Contains(d))
				}
			}
		}
	}
}

// BenchmarkFindUnsound runs FindMissing on 10,000 existing blobs, with and without a check of their
// files.
func BenchmarkFindUnsound(b *testing.B) {
	s := storeOpen(b, b.TempDir(), Options{})
	ds := make([]digest.Digest, 10000)
	for i := range ds {
		text := []byte{byte(i), byte(i >> 8), byte(i >> 16)}
		ds[i] = digest.Of(digest.SHA256, text)
		if err := s.PutBytes(b.Context(), ds[i], text); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("FindMissing", func(b *testing.B) {
		for b.Loop() {
			if missing, err := s.FindMissing(b.Context(), ds); err != nil || len(missing) > 0 {
				b.Fatal(missing, err)
			}
		}
	})
	b.Run("FindUnsound", func(b *testing.B) {
		for b.Loop() {
			if missing, err := s.verifier.FindUnsound(b.Context(), ds, true); err != nil || len(missing) > 0 {
				b.Fatal(missing, err)
			}
		}
	})
}
