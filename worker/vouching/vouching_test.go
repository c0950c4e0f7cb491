package vouching

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestWhatWasUsedCounts: damage is found in blobs that the command used, or that were used after
// its end, and in no others.
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
			v := New(s.Verifier())
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

// TestCloseLetsGo: the blobs that a run used are kept in the store and checked until Close, and no
// longer.
func TestCloseLetsGo(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprint("ended ", ended), func(t *testing.T) {
			s, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 20, VerifyEvery: -1})
			check(t, err)
			t.Cleanup(func() { check(t, s.Close()) })
			command, outputs := put(t, s, "command"), put(t, s, "outputs")
			v := New(s.Verifier())
			v.Used(command)
			if ended {
				v.End(t.Context())
			}
			v.Used(outputs)
			if got := s.Stats().PinnedBytes; got != command.SizeBytes()+outputs.SizeBytes() {
				t.Errorf("%d bytes are pinned before", got)
			}
			v.Close()
			awaitUnpinned(t, s)
		})
	}
}

// TestCloseDoesNotWait: Close does not wait for a verification that is no longer needed, of a file
// that takes days to read.
func TestCloseDoesNotWait(t *testing.T) {
	dir := t.TempDir()
	open := func() *disk.Store {
		s, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 50})
		check(t, err)
		return s
	}
	check(t, open().Close()) // it has seen this start of the machine
	vast, err := digest.Parse(digest.SHA256, strings.Repeat("5", 64), 8<<40)
	check(t, err)
	name := filepath.Join(dir, disk.BlobPath(vast))
	check(t, os.MkdirAll(filepath.Dir(name), 0o700))
	check(t, os.WriteFile(name, nil, 0o600))
	check(t, os.Truncate(name, vast.SizeBytes()))
	s := open()
	defer func() { check(t, s.Close()) }()
	if !s.Has(vast) {
		t.Fatal("the store does not have it")
	}
	v := New(s.Verifier())
	v.Used(vast)
	v.End(t.Context())
	v.Close()
	awaitUnpinned(t, s)
}

// awaitUnpinned returns when nothing is kept in s any more.
func awaitUnpinned(t *testing.T, s *disk.Store) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); s.Stats().PinnedBytes > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are pinned", s.Stats().PinnedBytes)
		}
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
