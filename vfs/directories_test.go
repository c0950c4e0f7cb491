package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// addRaw stores a Directory of files with the content "x". The names may be invalid as protobuf
// strings, and must be in order.
func addRaw(t testing.TB, s *vfstest.Source, names ...string) digest.Digest {
	t.Helper()
	content := s.Blob(t, "x")
	hash := protowire.AppendTag(nil, 1, protowire.BytesType)
	hash = protowire.AppendString(hash, content.Hash())
	hash = protowire.AppendTag(hash, 2, protowire.VarintType)
	hash = protowire.AppendVarint(hash, uint64(content.SizeBytes()))
	var b []byte
	for _, name := range names {
		node := protowire.AppendTag(nil, 1, protowire.BytesType)
		node = protowire.AppendString(node, name)
		node = protowire.AppendTag(node, 2, protowire.BytesType)
		node = protowire.AppendBytes(node, hash)
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, node)
	}
	d := digest.Of(digest.SHA256, b)
	s.Raw[d] = b
	return d
}

func TestNamesOf255BytesInAnyEncoding(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	var names []string
	for _, b := range []byte{0x01, '\n', ' ', '\\', 0x7f, 0x80, 0xc0, 0xfe, 0xff} {
		names = append(names, strings.Repeat(string([]byte{b}), tree.MaxName))
	}
	var seen readHook
	r := openRoot(t, f, RootSpec{Digest: addRaw(t, src, names...), Source: src, OnFirstRead: seen.hook})
	entries, err := os.ReadDir(r.Path())
	if err != nil || len(entries) != len(names) {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, name := range names {
		if entries[i].Name() != name {
			t.Errorf("listed %q, want %q", entries[i].Name(), name)
		}
		p := filepath.Join(r.Path(), name)
		if st, err := os.Lstat(p); err != nil || st.Size() != 1 {
			t.Errorf("stat of %q: %v", name[:1], err)
		}
		if got, err := os.ReadFile(p); err != nil || string(got) != "x" {
			t.Errorf("read of %q: %q, %v", name[:1], got, err)
		}
		if in, ok := r.Unchanged(name); !ok || in.Kind != File {
			t.Errorf("unchanged %q: %v, %t", name[:1], in, ok)
		}
		if seen.kinds()[name] != File {
			t.Errorf("the read of %q was not reported under its name", name[:1])
		}
	}
	for _, name := range []string{names[8][:254], names[8][:254] + "\xfe"} {
		if _, err := os.Lstat(filepath.Join(r.Path(), name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%d bytes: %v, want that it is absent", len(name), err)
		}
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestDirectoryOf100000Entries(t *testing.T) {
	const width = 100_000
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	names := make([]string, width)
	for i := range names {
		names[i] = fmt.Sprintf("entry-%06d", i)
	}
	root := addRaw(t, src, names...)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	for _, i := range []int{0, 1, 49_999, width - 1} {
		if got, err := os.ReadFile(filepath.Join(r.Path(), names[i])); err != nil || string(got) != "x" {
			t.Errorf("%s: %q, %v", names[i], got, err)
		}
	}
	for _, name := range []string{"entry-", "entry-100000", "entry-0000000", "zz"} {
		if _, err := os.Lstat(filepath.Join(r.Path(), name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want that it is absent", name, err)
		}
	}
	entries, err := os.ReadDir(r.Path())
	if err != nil || len(entries) != width {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for i, e := range entries {
		if e.Name() != names[i] {
			t.Fatalf("entry %d is %s", i, e.Name())
		}
	}
	if n := src.Calls(root); n != 1 {
		t.Errorf("it was asked for %d times", n)
	}
}

// forgetfulSource never has a directory in memory.
type forgetfulSource struct{ *vfstest.Source }

func (forgetfulSource) LocalDirectory(digest.Digest) (*tree.Directory, bool) { return nil, false }

func TestDirectoriesThatAreForgotten(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	var paths []string
	for i := range 300 { // a listing takes several calls
		paths = append(paths, fmt.Sprintf("a/%s-%03d", strings.Repeat("n", 200), i))
	}
	root := src.Tree(t, append(paths, "b/file", "link -> b/file")...)
	var seen readHook
	r := openRoot(t, f, RootSpec{Digest: root, Source: forgetfulSource{src}, OnFirstRead: seen.hook})
	want := append([]string{".", "a"}, paths...)
	want = append(want, "b", "b/file", "link")
	for range 2 {
		if got := vfstest.Walk(t, r.Path()); strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("walk: %d paths: %q", len(got), got)
		}
	}
	for _, p := range []string{"link", "b/file", "a/" + strings.Repeat("n", 200) + "-299"} {
		if _, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil {
			t.Error(err)
		}
	}
	if n := src.Calls(src.Find(t, root, "a")); n < 2 {
		t.Errorf("a was asked for %d times: nothing was forgotten", n)
	}
	seen.mu.Lock()
	for p, n := range seen.seen {
		if n != 1 {
			t.Errorf("%q was reported %d times", p, n)
		}
	}
	seen.mu.Unlock()
	if got := r.Stats(); got.DirectoriesRead != 3 || got.FilesRead != 2 || got.SymlinksRead != 1 {
		t.Errorf("stats: %+v", got)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestOnlyAskingTheSourceIsStalling(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/file")
	for _, p := range []string{"", "a"} { // make them ready
		d := root
		if p != "" {
			d = src.Find(t, root, p)
		}
		if _, err := src.Directory(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if _, err := os.Lstat(filepath.Join(r.Path(), "a/file")); err != nil {
		t.Fatal(err)
	}
	if d := r.Stalled(); d != 0 {
		t.Errorf("stalled %s with all directories at hand", d)
	}
	src.Forget()
	if _, err := os.Lstat(filepath.Join(r.Path(), "a/absent")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if r.Stalled() == 0 {
		t.Error("asking the source again was not counted")
	}
}
