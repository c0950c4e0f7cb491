package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
)

func TestStoreTakes(t *testing.T) {
	ctx := context.Background()
	d := digest.Of(digest.SHA256, []byte("text"))
	for name, c := range map[string]struct {
		make func(t *testing.T, s *Store) (path string)
		want string // part of the error
	}{
		"a file": {make: storeTempFile("text", 0o755)},
		"a file nobody may read or write": {
			make: storeTempFile("text", 0),
		},
		"what is there": {make: func(t *testing.T, s *Store) string {
			storePut(t, s, "text")
			return storeTempFile("text", 0o644)(t, s)
		}},
		"one of two links": {make: func(t *testing.T, s *Store) string {
			path := storeTempFile("text", 0o644)(t, s)
			if err := os.Link(path, path+"-other"); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		"another file system": {make: func(t *testing.T, _ *Store) string {
			var shm, tmp unix.Stat_t
			if unix.Stat("/dev/shm", &shm) != nil || unix.Stat(os.TempDir(), &tmp) != nil || shm.Dev == tmp.Dev {
				storeSkip(t, "/dev/shm is no other file system")
			}
			dir, err := os.MkdirTemp("/dev/shm", "store-test-")
			if err != nil {
				storeSkip(t, err.Error())
			}
			t.Cleanup(func() { _ = os.RemoveAll(dir) })
			path := filepath.Join(dir, "file")
			if err := os.WriteFile(path, []byte("text"), 0o644); err != nil {
				t.Fatal(err)
			}
			return path
		}},
		"a folder": {make: func(t *testing.T, s *Store) string {
			return s.TempDir()
		}, want: "not a regular file"},
		"a pipe": {make: func(t *testing.T, s *Store) string {
			path := filepath.Join(s.TempDir(), "pipe")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, want: "not a regular file"},
		"a link": {make: func(t *testing.T, s *Store) string {
			path := storeTempFile("text", 0o644)(t, s) + "-link"
			if err := os.Symlink("file", path); err != nil {
				t.Fatal(err)
			}
			return path
		}, want: "symbolic links"},
		"metadata of an overlay": {make: func(t *testing.T, s *Store) string {
			path := storeTempFile("text", 0o644)(t, s)
			if err := unix.Setxattr(path, "trusted.overlay.metacopy", nil, 0); err != nil {
				storeSkip(t, "cannot set trusted attributes: "+err.Error())
			}
			return path
		}, want: "without its bytes"},
		"nothing": {make: func(t *testing.T, s *Store) string { return s.TempDir() + "/none" }, want: "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			s := storeOpen(t, t.TempDir(), Options{})
			path := c.make(t, s)
			got, err := s.Take(ctx, path, digest.SHA256)
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			if err != nil || got != d {
				t.Fatalf("it is %s, %v", got, err)
			}
			if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the file is still there: %v", err)
			}
			if other, err := os.OpenFile(path+"-other", os.O_WRONLY, 0); err == nil {
				_, _ = other.WriteString("evil")
				_ = other.Close()
			}
			storeWantBlobFile(t, s, d, "text")
		})
	}
}

// storeTempFile makes a file with the given text and mode, last changed long ago.
func storeTempFile(text string, mode os.FileMode) func(*testing.T, *Store) string {
	return func(t *testing.T, s *Store) string {
		t.Helper()
		path := filepath.Join(s.TempDir(), "file")
		long := time.Now().Add(-1000 * time.Hour)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode), os.Chtimes(path, long, long)); err != nil {
			t.Fatal(err)
		}
		if mode == 0 && os.Geteuid() != 0 {
			storeSkip(t, "only root opens a file of mode 0")
		}
		return path
	}
}

func storeWantBlobFile(t *testing.T, s *Store, d digest.Digest, text string) {
	t.Helper()
	if got := storeText(s, d); got != text {
		t.Errorf("read %s", got)
	}
	info, err := os.Stat(s.files.path(d))
	if err != nil || info.Mode() != 0o444 || time.Since(info.ModTime()) > time.Hour {
		t.Errorf("file %v, %v", info, err)
	}
	if got := s.Stats(); got.Bytes != int64(len(text)) || got.Blobs != 1 {
		t.Errorf("stats %+v", got)
	}
}
