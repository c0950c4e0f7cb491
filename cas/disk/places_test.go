package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestWrongPlaces: whatever is at the path of a file or folder of the store, the store opens,
// writes its notes, has the blobs that it can find, and accepts missing ones. The file in the way
// is not lost.
func TestWrongPlaces(t *testing.T) {
	file := func(path string) error { return os.WriteFile(path, []byte("a file"), 0o600) }
	fifo := func(path string) error { return unix.Mkfifo(path, 0o600) }
	folder := func(path string) error { return os.MkdirAll(filepath.Join(path, "in", "it"), 0o700) }
	nowhere := func(path string) error { return os.Symlink("nowhere", path) }
	itself := func(path string) error { return os.Symlink(path, path) }
	for place, things := range map[string]map[string]func(path string) error{
		"lock":       {"fifo": fifo},
		"verified":   {"fifo": fifo, "folder": folder},
		"holders":    {"fifo": fifo, "folder": folder},
		"scrub":      {"fifo": fifo, "folder": folder},
		"aside":      {"file": file, "itself": itself},
		"sha256":     {"file": file, "fifo": fifo, "nowhere": nowhere, "itself": itself},
		"sha256.new": {"file": file, "itself": itself},
		"shard":      {"file": file, "fifo": fifo, "nowhere": nowhere, "itself": itself},
		"sha256/zz":  {"file": file, "fifo": fifo, "nowhere": nowhere, "itself": itself},
	} {
		for name, put := range things {
			t.Run(place+"/"+name, func(t *testing.T) {
				s := storeOpen(t, t.TempDir(), Options{Isolate: true})
				d := storePut(t, s, "text")
				path := filepath.Join(s.Dir(), place)
				if place == "shard" {
					path = filepath.Dir(s.files.path(d))
				}
				if err := errors.Join(s.Close(), os.RemoveAll(path), put(path)); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					s = storeOpen(t, s.Dir(), Options{Isolate: true})
					if b, err := s.ReadBlob(t.Context(), d); err != nil && !errors.Is(err, cas.ErrNotFound) {
						t.Errorf("%q, %v", b, err)
					}
					if err := s.PutBytes(t.Context(), d, []byte("text")); err != nil {
						t.Error(err)
					}
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}

// TestTempFolderThatStays: a file in the folder for temporary files that cannot be removed does not
// keep the store from opening.
func TestTempFolderThatStays(t *testing.T) {
	s := storeOpen(t, t.TempDir(), Options{})
	stays := filepath.Join(s.TempDir(), "stays")
	if err := errors.Join(s.Close(), os.WriteFile(stays, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	letGo := holdFile(t, stays)
	s = storeOpen(t, s.Dir(), Options{})
	storePut(t, s, "text")
	moved := filepath.Join(s.Dir(), "damaged-tmp-1", "stays")
	if _, err := os.Lstat(moved); err != nil {
		t.Error(err)
	}
	letGo()
}

// TestFolderThatGoesWhileTheStoreIsOpen: if a folder of the store disappears, failures to fetch are
// errors of the disk.
func TestFolderThatGoesWhileTheStoreIsOpen(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"file":    func(path string) error { return os.WriteFile(path, nil, 0o600) },
		"nowhere": func(path string) error { return os.Symlink("nowhere", path) },
		"itself":  func(path string) error { return os.Symlink(path, path) },
	} {
		s := storeOpen(t, t.TempDir(), Options{})
		storePut(t, s, "other")
		group := filepath.Join(s.Dir(), "sha256")
		if err := errors.Join(os.Rename(group, group+"-before"), put(group)); err != nil {
			t.Fatal(err)
		}
		d := digest.Of(digest.SHA256, []byte("text"))
		if err := s.PutBytes(t.Context(), d, []byte("text")); !errors.Is(err, cas.ErrUnwritable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMakeFolders: the first blobs of a new store need no new folders, and whatever is in the place
// of a folder does not keep the store from opening.
func TestMakeFolders(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "sha256"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "sha256", "ab"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := storeOpen(t, dir, Options{MakeFolders: true})
	shards, err := os.ReadDir(filepath.Join(dir, "sha256"))
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, shard := range shards {
		made[shard.Name()] = shard.IsDir()
	}
	for i := range 300 {
		if path := filepath.Dir(s.files.path(storePut(t, s, fmt.Sprint("text ", i)))); filepath.Base(path) != "ab" && !made[filepath.Base(path)] {
			t.Errorf("%s was made with its first blob", path)
		}
	}
}

// TestMakeFoldersOnFullDisk: a disk that has no room for all folders has as much room for blobs as
// without them.
func TestMakeFoldersOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "nr_inodes=100"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("mount tmpfs: %v", err)
		}
		t.Skipf("needs a small file system: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	s := storeOpen(t, filepath.Join(dir, "store"), Options{MakeFolders: true})
	for i := range 20 {
		storePut(t, s, fmt.Sprint("text ", i))
	}
}

// TestMakeFoldersOfResults: the first results of a new action cache need no new folders.
func TestMakeFoldersOfResults(t *testing.T) {
	dir := t.TempDir()
	a, err := OpenActions(dir, ActionsOptions{MakeFolders: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	for shard := range 256 {
		if info, err := os.Stat(filepath.Join(dir, resultsName, fmt.Sprintf("%02x", shard))); err != nil || !info.IsDir() {
			t.Fatalf("folder %02x: %v", shard, err)
		}
	}
}
