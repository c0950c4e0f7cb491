package records

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFolderOutlivesItself reads the records of one Folder with another.
func TestFolderOutlivesItself(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "durable")
	other := testKey(1)
	other.Instance = ""
	for n, k := range []Key{testKey(1), testKey(2), other} {
		put(t, NewFolder(dir), k, testValue(n, 100))
	}
	for n, k := range []Key{testKey(1), testKey(2), other} {
		expect(t, NewFolder(dir), k, testValue(n, 100))
	}
}

// TestFolderNeverGivesOutDamage changes each byte of a file in turn, and truncates it. Whatever the
// damage, the error names the file, and neither a read nor a swap changes the file. A Put or the
// removal of the file ends the error.
func TestFolderNeverGivesOutDamage(t *testing.T) {
	f, k, value := NewFolder(t.TempDir()), testKey(1), []byte("a value\nof two lines")
	put(t, f, k, value)
	good, err := os.ReadFile(f.Path(k))
	if err != nil {
		t.Fatal(err)
	}
	var wrong [][]byte
	for at := range good {
		changed := bytes.Clone(good)
		changed[at] ^= 1 << (at % 8)
		wrong = append(wrong, changed, good[:at])
	}
	wrong = append(wrong, append(bytes.Clone(good), '\n'), make([]byte, len(good)))
	for _, content := range wrong {
		if err := os.WriteFile(f.Path(k), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Get(t.Context(), k); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), f.Path(k)) {
			t.Fatalf("%q: %v", content, err)
		}
		for _, old := range [][]byte{nil, value} {
			if err := f.CompareAndSwap(t.Context(), k, old, []byte("new")); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%q: swap of %q: %v", content, old, err)
			}
		}
		if now, err := os.ReadFile(f.Path(k)); err != nil || !bytes.Equal(now, content) {
			t.Fatalf("%q became %q, %v", content, now, err)
		}
	}
	put(t, f, k, value)
	expect(t, f, k, value)
	if err := os.Remove(f.Path(k)); err != nil {
		t.Fatal(err)
	}
	expect(t, f, k, nil)
}

// TestFolderTakesNoOthersRecord gives the file of one record the name of another.
func TestFolderTakesNoOthersRecord(t *testing.T) {
	f := NewFolder(t.TempDir())
	put(t, f, testKey(1), []byte("value"))
	if err := os.Rename(f.Path(testKey(1)), f.Path(testKey(2))); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Get(t.Context(), testKey(2)); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

// TestFolderBucketsAreFolders uses bucket names that would lead out of the folder.
func TestFolderBucketsAreFolders(t *testing.T) {
	f := NewFolder(t.TempDir())
	for _, bucket := range []string{".", "..", "../x", "a/b", "/a", ""} {
		k := testKey(1)
		k.Bucket = bucket
		if err := f.Put(t.Context(), k, nil); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", bucket, err)
		}
	}
}

// TestFolderKeepsTheOldOneOnAFullDisk has no room for a new value.
func TestFolderKeepsTheOldOneOnAFullDisk(t *testing.T) {
	f, k := NewFolder(filepath.Join(smallDisk(t, "size=256k"), "durable")), testKey(1)
	put(t, f, k, []byte("old"))
	if err := f.Put(t.Context(), k, make([]byte, MaxValueBytes)); err == nil {
		t.Error("a value was written without room for it")
	}
	expect(t, f, k, []byte("old"))
	put(t, f, k, []byte("new"))
	expect(t, f, k, []byte("new"))
}
