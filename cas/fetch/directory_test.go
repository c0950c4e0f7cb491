package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// storeDirectory makes a Directory of words like f:name, d:name, l:name=target.
func storeDirectory(words ...string) *repb.Directory {
	m := new(repb.Directory)
	empty := digest.SHA256.Empty().Proto()
	for _, word := range words {
		switch kind, name := word[0], word[2:]; kind {
		case 'f':
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: empty})
		case 'd':
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: empty})
		case 'l':
			name, target, _ := strings.Cut(name, "=")
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: target})
		}
	}
	return m
}

// storeLargeDirectory has n entries, of all kinds.
func storeLargeDirectory(n int) *repb.Directory {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("%c:entry-%08d=target", "fdl"[i%3], i)
	}
	return storeDirectory(words...)
}

// storePutDirectory stores m and returns its digest.
func storePutDirectory(t *testing.T, s *testStore, m proto.Message) digest.Digest {
	t.Helper()
	d, b, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutBytes(context.Background(), d, b); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestStoreReadsDirectories(t *testing.T) {
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), storeOptions{})
	u, missing := storeNewUpstream("missing")
	delete(u.texts, missing[0])
	r := s.Through(u)

	m := storeDirectory("f:a", "d:b", "l:c=x")
	d := storePutDirectory(t, s, m)
	if local, ok := r.LocalDirectory(d); !ok || local.Len() != 3 {
		t.Error("what is in the store is not local")
	}
	got, err := r.Directory(ctx, d)
	if err != nil || got.Len() != 3 || got.At(2).Target != "x" {
		t.Errorf("read %v, %v", got, err)
	}
	if again, _ := r.Directory(ctx, d); again != got {
		t.Error("read twice")
	}
	if at, ok := s.Through(u).LocalDirectory(d); !ok || at != got {
		t.Error("not at hand for another ReadThrough")
	}
	if got, err := r.Directory(ctx, digest.SHA256.Empty()); err != nil || got.Len() > 0 {
		t.Errorf("the empty one: %v, %v", got, err)
	}
	huge, err := digest.Parse(digest.SHA256, d.Hash(), tree.MaxBytes+1)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d    digest.Digest
		want error
	}{
		"missing":      {missing[0], cas.ErrNotFound},
		"not decoding": {storePut(t, s, "this is no message"), tree.ErrInvalid},
		"not valid":    {storePutDirectory(t, s, storeDirectory("f:..")), tree.ErrInvalid},
		"huge":         {huge, tree.ErrInvalid},
	} {
		if got, err := r.Directory(ctx, c.d); got != nil || !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.d.Hash()) {
			t.Errorf("%s: %v, error %v, want %v", name, got, err, c.want)
		}
		if _, ok := r.LocalDirectory(c.d); ok {
			t.Errorf("%s: at hand", name)
		}
	}
}

func TestDirectoryCacheIsBounded(t *testing.T) {
	const most = 10_000
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), storeOptions{DirectoryCacheBytes: most})
	u, _ := storeNewUpstream()
	r := s.Through(u)
	var ds []digest.Digest
	for i := range 50 {
		ds = append(ds, storePutDirectory(t, s, storeDirectory(fmt.Sprintf("f:%03d", i))))
		if _, err := r.Directory(ctx, ds[i]); err != nil {
			t.Fatal(err)
		}
		s.directories.Get(ds[0]) // used all the time
	}
	if bytes := s.directories.Weight(); bytes > most || bytes < most/2 {
		t.Errorf("%d of %d bytes", bytes, most)
	}
	has := func(d digest.Digest) bool { _, ok := s.directories.Get(d); return ok }
	if !has(ds[0]) || !has(ds[49]) || has(ds[1]) {
		t.Error("not the one unused for longest went")
	}
	if _, err := r.Directory(ctx, storePutDirectory(t, s, storeLargeDirectory(1000))); err != nil || !has(ds[49]) {
		t.Errorf("a large one displaced the others, %v", err)
	}
}

// BenchmarkLocalDirectory measures a lookup of a directory that the ReadThrough does not have in
// memory.
func BenchmarkLocalDirectory(b *testing.B) {
	c := bounded.NewMemory[digest.Digest, *tree.Directory](1 << 30)
	var ds []digest.Digest
	for i := range 1000 {
		d, encoded, err := digest.OfMessage(digest.SHA256, storeDirectory(fmt.Sprintf("f:%03d", i)))
		if err != nil {
			b.Fatal(err)
		}
		dir, err := tree.Parse(digest.SHA256, encoded)
		if err != nil {
			b.Fatal(err)
		}
		c.Add(d, dir, int64(dir.Bytes()))
		ds = append(ds, d)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, ok := c.Get(ds[i%len(ds)]); !ok {
				b.Fatal("not there")
			}
		}
	})
}

// TestDirectoriesInMemoryAreRight: a damaged directory must not be kept in memory, where it would
// outlive the damage.
func TestDirectoriesInMemoryAreRight(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	d, b, err := digest.OfMessage(digest.SHA256, &repb.Directory{Files: []*repb.FileNode{
		{Name: "file", Digest: digest.Of(digest.SHA256, []byte("x")).Proto()},
	}})
	if err == nil {
		err = s.PutBytes(t.Context(), d, b)
	}
	if err != nil {
		t.Fatal(err)
	}
	if file, err := os.OpenFile(filepath.Join(s.Dir(), disk.BlobPath(d)), os.O_RDWR, 0); err != nil {
		t.Fatal(err)
	} else if _, err := file.WriteAt([]byte{b[0] ^ 1}, 0); errors.Join(err, file.Close()) != nil {
		t.Fatal(err)
	}
	through := s.Through(&client.Client{})
	if _, ok := through.LocalDirectory(d); ok {
		t.Error("a damaged directory is shown")
	}
	if got := storeText(s, d); got != "error: "+(&cas.MissingError{Digests: []digest.Digest{d}}).Error() {
		t.Errorf("read %q", got)
	}
	if err := s.PutBytes(t.Context(), d, b); err != nil {
		t.Fatal(err)
	}
	if _, ok := through.LocalDirectory(d); !ok {
		t.Error("the right directory is not shown")
	}
}

// A counted store counts how often blobs are read.
type counted struct {
	*disk.Store
	reads int
}

func (s *counted) ReadLocal(d digest.Digest) ([]byte, bool) {
	s.reads++
	return s.Store.ReadLocal(d)
}

// TestInvalidDirectoriesAreReadOnce: an invalid directory is not read and hashed for each look at it.
func TestInvalidDirectoriesAreReadOnce(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	invalid := storePutDirectory(t, s, storeDirectory("f:.."))
	store := &counted{Store: s.Store}
	group, err := NewGroup(store, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer group.Close()
	r := group.Through(nil)
	for range 3 {
		if _, ok := r.LocalDirectory(invalid); ok {
			t.Error("it is a directory")
		}
	}
	if _, err := r.Directory(t.Context(), invalid); !errors.Is(err, tree.ErrInvalid) || !strings.Contains(err.Error(), invalid.Hash()) {
		t.Errorf("it is read: %v", err)
	}
	if store.reads != 1 {
		t.Errorf("it was read %d times", store.reads)
	}
}
