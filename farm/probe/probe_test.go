package probe

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A slow storage takes a while for each call.
type slow struct{ known map[digest.Digest]bool }

func (s *slow) FindMissing(_ context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	time.Sleep(time.Second)
	return ds, nil
}

func (s *slow) Upload(_ context.Context, blobs []client.Blob, _ func(digest.Digest, int64)) error {
	time.Sleep(2 * time.Second)
	s.known[blobs[0].Digest] = true
	return nil
}

func (s *slow) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	time.Sleep(3 * time.Second)
	if !s.known[d] {
		return nil, os.ErrNotExist
	}
	return nil, nil
}

func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, err := Measure(t.Context(), &slow{map[digest.Digest]bool{}}, 1000)
		if want := (Speed{time.Second, 2 * time.Second, 3 * time.Second, 1000}); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	})
}

// TestFileSystem knows what it cannot mistake: that of /proc and of folders below it.
func TestFileSystem(t *testing.T) {
	for dir, want := range map[string]string{"/proc": "proc", "/proc/self": "proc"} {
		if got, err := FileSystem(dir); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", dir, got, err, want)
		}
	}
	if got, err := FileSystem(t.TempDir()); err != nil || got == "" || got == "proc" {
		t.Errorf("a temporary folder: %q, %v", got, err)
	}
	if _, err := FileSystem("/no/such/folder"); err == nil {
		t.Error("a folder that does not exist has a file system")
	}
}

func TestIsSynchronized(t *testing.T) {
	if _, err := IsSynchronized(); err != nil {
		t.Error(err)
	}
}
