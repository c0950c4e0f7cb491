package vouching

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
)

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *disk.Store, text string) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(text))
	check(t, s.PutBytes(t.Context(), d, []byte(text)))
	return d
}

// damage changes a blob in the store behind its back.
func damage(t *testing.T, s *disk.Store, d digest.Digest) {
	t.Helper()
	name := filepath.Join(s.Dir(), disk.BlobPath(d))
	check(t, os.Chmod(name, 0o600))
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	check(t, err)
	_, err = file.WriteAt([]byte("X"), 0)
	check(t, errors.Join(err, file.Close()))
}

// TestWhatWasUsedCounts: damage is found in what the command used and in what was used after its end, and in
// nothing else.
func TestWhatWasUsedCounts(t *testing.T) {
	for _, c := range []struct {
		name          string
		damaged, want string
	}{
		{"nothing", "", ""},
		{"of the command", "command", "command"},
		{"of the outputs", "outputs", "outputs"},
		{"of nobody", "nobody", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20})
			check(t, err)
			t.Cleanup(func() { check(t, s.Close()) })
			blobs := map[string]digest.Digest{}
			for _, text := range []string{"command", "outputs", "nobody"} {
				blobs[text] = put(t, s, text)
			}
			if c.damaged != "" {
				damage(t, s, blobs[c.damaged])
			}
			v := New(s)
			defer v.Close()
			v.Used(blobs["command"])
			v.End(t.Context())
			v.Used(blobs["outputs"])
			err = v.Wait(t.Context())
			var want []string
			if c.want != "" {
				want = []string{blobs[c.want].String()}
			}
			if IsDamage(err) != (want != nil) || !slices.Equal(DamagedBlobs(err), want) {
				t.Errorf("got %v, damaged %v, want %v", err, DamagedBlobs(err), want)
			}
		})
	}
}

func TestDamagedBlobs(t *testing.T) {
	one, two := digest.Of(digest.SHA256, []byte("1")), digest.Of(digest.SHA256, []byte("2"))
	err := errors.Join(fmt.Errorf("read: %w", &cas.DamagedError{Digests: []digest.Digest{one}}), errors.New("another"),
		&cas.DamagedError{Digests: []digest.Digest{two}})
	if got := DamagedBlobs(err); !slices.Equal(got, []string{one.String(), two.String()}) || !IsDamage(err) {
		t.Errorf("got %v", got)
	}
	if IsDamage(cas.ErrNotFound) || IsDamage(nil) {
		t.Error("what is not there is damaged")
	}
}
