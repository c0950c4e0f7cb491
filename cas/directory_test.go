package cas

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
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

func TestValidateDirectoryAccepts(t *testing.T) {
	for _, words := range []string{
		"",
		"f:a",
		"f:a f:b d:c d:d l:e=x l:f=/absolute/target l:g=../../up",
		"f:... f:.hidden f:a..b d:-dash l:ünïcode=ä",
		"f:A f:B f:a", // by bytes, not by alphabet
		"f:a f:c d:b d:d l:aa=x l:cc=x",
		"f:" + strings.Repeat("n", 255),
	} {
		if err := ValidateDirectory(digest.SHA256, storeDirectory(strings.Fields(words)...)); err != nil {
			t.Errorf("%.60s: %v", words, err)
		}
	}
	if err := ValidateDirectory(digest.SHA256, nil); err != nil {
		t.Errorf("no message: %v", err)
	}
}

func TestValidateDirectoryRejectsNames(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, name := range []string{"", ".", "..", "/", "a/b", "/a", "a/", "../a", "a\x00", "\x00", long} {
		for _, kind := range []string{"f:", "d:", "l:"} {
			m := storeDirectory(kind + name + "=target")
			for _, f := range m.Files {
				f.Name = name
			}
			for _, d := range m.Directories {
				d.Name = name
			}
			err := ValidateDirectory(digest.SHA256, m)
			if !errors.Is(err, ErrInvalidDirectory) || !strings.Contains(err.Error(), fmt.Sprintf("%.100q", name)) {
				t.Errorf("%s%q: error %v", kind, name, err)
			}
		}
	}
}

func TestValidateDirectoryRejects(t *testing.T) {
	bad := func(change func(m *repb.Directory)) *repb.Directory {
		m := storeDirectory("f:file", "d:folder", "l:link=target")
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		m    *repb.Directory
		want string
	}{
		"two files":             {storeDirectory("f:a", "f:b", "f:b"), `file "b" occurs more than once`},
		"two directories":       {storeDirectory("d:b", "d:b"), `directory "b" occurs more than once`},
		"two symlinks":          {storeDirectory("l:b=x", "l:b=y"), `symlink "b" occurs more than once`},
		"file and directory":    {storeDirectory("f:a", "f:c", "d:b", "d:c"), `"c" occurs more than once`},
		"file and symlink":      {storeDirectory("f:z", "l:a=x", "l:z=x"), `"z" occurs more than once`},
		"directory and symlink": {storeDirectory("f:a", "d:b", "l:b=x"), `"b" occurs more than once`},
		"unsorted files":        {storeDirectory("f:b", "f:a"), `file "a" comes after "b"`},
		"unsorted directories":  {storeDirectory("d:a", "d:c", "d:b"), `directory "b" comes after "c"`},
		"unsorted symlinks":     {storeDirectory("l:b=x", "l:B=x"), `symlink "B" comes after "b"`},
		"no target":             {storeDirectory("l:b="), `symlink "b" has no target`},
		"NUL in a target":       {storeDirectory("l:b=x\x00y"), `symlink "b" has a NUL in its target "x\x00y"`},
		"file without digest":   {bad(func(m *repb.Directory) { m.Files[0].Digest = nil }), `file "file": invalid digest`},
		"folder without digest": {bad(func(m *repb.Directory) { m.Directories[0].Digest = nil }), `directory "folder": invalid digest`},
		"hash too short":        {bad(func(m *repb.Directory) { m.Files[0].Digest = &repb.Digest{Hash: "ab"} }), `file "file"`},
		"negative size": {bad(func(m *repb.Directory) {
			m.Directories[0].Digest = &repb.Digest{Hash: digest.SHA256.Empty().Hash(), SizeBytes: -1}
		}), `directory "folder"`},
		"an escape in the name":  {storeDirectory("f:a\n\x1b[2J", "f:a"), `"a\n\x1b[2J"`},
		"a node that is not set": {&repb.Directory{Files: []*repb.FileNode{nil}}, `file ""`},
	} {
		err := ValidateDirectory(digest.SHA256, c.m)
		if !errors.Is(err, ErrInvalidDirectory) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

// storeLargeDirectory has n entries, of all kinds.
func storeLargeDirectory(n int) *repb.Directory {
	words := make([]string, n)
	for i := range words {
		words[i] = fmt.Sprintf("%c:entry-%08d=target", "fdl"[i%3], i)
	}
	return storeDirectory(words...)
}

func TestValidateDirectoryTakesAHundredThousandEntriesWithoutMemory(t *testing.T) {
	m := storeLargeDirectory(100_000)
	if err := ValidateDirectory(digest.SHA256, m); err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1, func() { _ = ValidateDirectory(digest.SHA256, m) }); n > 10 {
		t.Errorf("%.0f allocations", n)
	}
}

func BenchmarkValidateDirectory(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		m := storeLargeDirectory(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				_ = ValidateDirectory(digest.SHA256, m)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/entry")
		})
	}
}

func FuzzValidateDirectory(f *testing.F) {
	f.Add("a", "b", "c", "t")
	f.Add("a", "a", "..", "")
	f.Fuzz(func(t *testing.T, file, folder, link, target string) {
		m := storeDirectory("f:x", "d:x", "l:x=x")
		m.Files[0].Name, m.Directories[0].Name = file, folder
		m.Symlinks[0].Name, m.Symlinks[0].Target = link, target
		good := file != folder && folder != link && link != file && target != "" && !strings.Contains(target, "\x00")
		for _, name := range []string{file, folder, link} {
			good = good && name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\x00")
		}
		if err := ValidateDirectory(digest.SHA256, m); (err == nil) != good {
			t.Errorf("error %v, want one: %t", err, !good)
		}
	})
}

// storePutDirectory stores m and returns its digest.
func storePutDirectory(t *testing.T, s *Store, m proto.Message) digest.Digest {
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
	s := storeOpen(t, t.TempDir(), StoreOptions{})
	u, missing := storeNewUpstream("missing")
	delete(u.texts, missing[0])
	r := s.Through(u)

	m := storeDirectory("f:a", "d:b", "l:c=x")
	d := storePutDirectory(t, s, m)
	got, err := r.Directory(ctx, d)
	if err != nil || !proto.Equal(got, m) {
		t.Errorf("read %v, %v", got, err)
	}
	if again, _ := r.Directory(ctx, d); again != got {
		t.Error("decoded twice")
	}
	if got, err := r.Directory(ctx, digest.SHA256.Empty()); err != nil || !proto.Equal(got, new(repb.Directory)) {
		t.Errorf("the empty one: %v, %v", got, err)
	}
	huge, err := digest.Parse(digest.SHA256, d.Hash(), maxDirectoryBytes+1)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		d    digest.Digest
		want error
	}{
		"missing":      {missing[0], ErrNotFound},
		"not decoding": {storePut(t, s, "this is no message"), ErrInvalidDirectory},
		"not valid":    {storePutDirectory(t, s, storeDirectory("f:..")), ErrInvalidDirectory},
		"huge":         {huge, ErrInvalidDirectory},
	} {
		if got, err := r.Directory(ctx, c.d); got != nil || !errors.Is(err, c.want) ||
			!strings.Contains(err.Error(), c.d.Hash()) {
			t.Errorf("%s: %v, error %v, want %v", name, got, err, c.want)
		}
	}
}

func TestDirectoryCacheIsBounded(t *testing.T) {
	ctx := context.Background()
	s := storeOpen(t, t.TempDir(), StoreOptions{DirectoryCacheBytes: 10_000})
	u, _ := storeNewUpstream()
	r := s.Through(u)
	var ds []digest.Digest
	for i := range 50 {
		ds = append(ds, storePutDirectory(t, s, storeDirectory(fmt.Sprintf("f:%03d", i))))
		if _, err := r.Directory(ctx, ds[i]); err != nil {
			t.Fatal(err)
		}
		s.directories.get(ds[0]) // used all the time
	}
	c := &s.directories
	if c.bytes > c.maxBytes || c.bytes < c.maxBytes/2 || len(c.entries) != c.order.Len() {
		t.Errorf("%d of %d bytes, %d entries, %d in order", c.bytes, c.maxBytes, len(c.entries), c.order.Len())
	}
	if c.get(ds[0]) == nil || c.get(ds[49]) == nil || c.get(ds[1]) != nil {
		t.Error("not the one unused for longest went")
	}
	if _, err := r.Directory(ctx, storePutDirectory(t, s, storeLargeDirectory(1000))); err != nil || c.get(ds[49]) == nil {
		t.Errorf("a large one displaced the others, %v", err)
	}
}
