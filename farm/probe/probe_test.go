package probe

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// A slow storage takes a while for each call: a second, and for the blob the given times.
type slow struct {
	known    map[digest.Digest]bool
	up, down time.Duration
}

func pass(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slow) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return ds, pass(ctx, time.Second)
}

func (s *slow) Upload(ctx context.Context, blobs []client.Blob, _ func(digest.Digest, int64)) error {
	s.known[blobs[0].Digest] = true
	return pass(ctx, s.up)
}

func (s *slow) Read(ctx context.Context, d digest.Digest) ([]byte, error) {
	if !s.known[d] {
		return nil, os.ErrNotExist
	}
	return nil, pass(ctx, s.down)
}

// TestMeasure: a slow storage is measured as long as no single call takes too long, however long
// all of them take.
func TestMeasure(t *testing.T) {
	most := Patience{Answer: 2 * time.Second, Transfer: 10 * time.Second}
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			up, down time.Duration
			fails    string
		}{
			{2 * time.Second, 3 * time.Second, ""},
			{9 * time.Second, 8 * time.Second, ""},
			{11 * time.Second, 0, "upload: "},
			{0, time.Hour, "download: "},
		} {
			got, err := Measure(t.Context(), &slow{map[digest.Digest]bool{}, c.up, c.down}, 1000, most)
			switch want := (Speed{time.Second, c.up, c.down, 1000}); {
			case c.fails != "":
				if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), c.fails) {
					t.Errorf("%s and %s: %v, want %q", c.up, c.down, err, c.fails)
				}
			case err != nil || got != want:
				t.Errorf("%+v, %v, want %+v", got, err, want)
			}
		}
	})
}

// TestFileSystem checks unmistakable file systems: /proc and folders below it, under any name.
func TestFileSystem(t *testing.T) {
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("/proc", link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(link)
	for dir, want := range map[string]string{
		"/proc": "proc", "/proc/self": "proc", link: "proc", filepath.Join(link, "self"): "proc", ".": "proc", "sys": "proc",
	} {
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
