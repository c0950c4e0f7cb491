package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// blobFolder is the BlobFolder of the files of s.
func blobFolder(s *vfstest.Source, used func(digest.Digest)) *BlobFolder {
	return &BlobFolder{
		Dir:   s.Dir,
		Path:  vfstest.BlobFile,
		Parse: vfstest.ParseBlobFile,
		Used:  used,
	}
}

// openImageFS opens an FS that makes images.
func openImageFS(t *testing.T, src *vfstest.Source, used func(digest.Digest)) *FS {
	t.Helper()
	f := openFS(t, Options{Blobs: blobFolder(src, used)})
	if f.images == nil {
		const reason = "the kernel has no metadata images (Linux 6.12, EROFS, fanotify)"
		if os.Getenv("CI") != "" {
			t.Fatal(reason)
		}
		t.Skip(reason)
	}
	return f
}

// imagesOf is how many images r shows.
func imagesOf(r *Root) int {
	if r.images == nil {
		return 0
	}
	return len(r.images.Folders())
}

// shownAt reports whether an image shows the directory called name.
func shownAt(r *Root, name string) bool {
	c, ok := r.images.Cover().Child(name)
	return ok && c.Rest.Whole()
}

// toolchain lists the paths of a tree that is large enough for an image.
func toolchain(below string) (paths []string) {
	for i := range image.MinEntries {
		paths = append(paths, fmt.Sprintf("%s/lib%d/file%d", below, i%7, i))
	}
	return append(paths, below+"/bin/tool!", below+"/empty/")
}

// learn reads roots that are new, and waits for the image of their common subtree, or of the whole
// tree if there is only one root.
func learn(t *testing.T, f *FS, src *vfstest.Source, look func(path string), roots ...digest.Digest) {
	t.Helper()
	for i := range 2 {
		r := openRoot(t, f, RootSpec{Name: fmt.Sprintf("learn-%d", i), Digest: roots[i%len(roots)], Source: src})
		look(r.Path())
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	waitUntil(t, "an image", func() bool { return f.Images() > 0 })
}

// TestTruncatedInput: truncate(2) of a file in an image does not open it. The blob must be reported
// before any process gets the remaining bytes.
func TestTruncatedInput(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, toolchain("sdk")...)
	learn(t, f, src, lookAround(t), root)
	const file = "sdk/lib3/file10"
	var told sync.Map
	r := openRoot(t, f, RootSpec{
		Digest: root, Source: src, OnBlobRead: func(d digest.Digest) { told.Store(d, true) },
		OnBlob: func(d digest.Digest) { t.Errorf("%s is told as what is about to be read", d) },
	})
	if imagesOf(r) == 0 {
		t.Fatal("the root shows no image")
	}
	for _, err := range []error{
		os.Truncate(filepath.Join(r.Path(), file), 4), os.Rename(filepath.Join(r.Path(), file), filepath.Join(r.Path(), "out")),
		os.WriteFile(filepath.Join(r.Path(), "new"), []byte("new"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := r.Written("new"); !ok {
		t.Error("a new file is not said to be written")
	}
	if path, ok := r.Written("out"); ok {
		t.Errorf("what was copied in the kernel may be moved from %s", path)
	}
	if got := mustRead(t, filepath.Join(r.Path(), "out")); string(got) != "cont" {
		t.Errorf("the output is %q", got)
	}
	err := r.Vouch(t.Context())
	if _, ok := told.Load(src.Find(t, root, file)); err != nil || !ok {
		t.Errorf("the blob is told: %t, %v", ok, err)
	}
}

// describe lists all there is to see of a tree: names, attributes, contents.
func describe(t *testing.T, root string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		if p == root {
			st.Mtim = unix.Timespec{} // of the mount
		}
		line := fmt.Sprintf("%s %o %d:%d links %d time %d.%d", rel, st.Mode, st.Uid, st.Gid, st.Nlink, st.Mtim.Sec, st.Mtim.Nsec)
		switch d.Type() {
		case 0:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %d bytes %q", st.Size, b)
		case fs.ModeSymlink:
			target, err := os.Readlink(p)
			if err != nil {
				return err
			}
			line += " -> " + target
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	return lines
}

// list returns what was reported, and how often if not once.
func (c *readHook) list() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, n := range c.seen {
		line := c.kind[p].String() + " " + p
		if n != 1 {
			line += fmt.Sprintf(" %d times", n)
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func lookAround(t *testing.T) func(string) {
	return func(root string) { vfstest.Walk(t, root) }
}

// TestImageShowsTheSame compares a root with an image to one without.
func TestImageShowsTheSame(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	plain := openFS(t, Options{})
	sdk := append(toolchain("out/sdk"), "out/sdk/lib1/link -> file1", "out/sdk/dangling -> nowhere", "out/other")
	learn(t, f, src, lookAround(t), src.Tree(t, append(sdk, "a")...), src.Tree(t, append(sdk, "aa")...))
	second := src.Tree(t, append(sdk, "b", "out2/c")...)
	// The root itself is new, but the subtree in the image was seen before.
	if _, err := src.Directory(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	r := openRoot(t, f, RootSpec{Digest: second, Source: src})
	if imagesOf(r) != 1 || !shownAt(r, "out") {
		t.Fatalf("%d images in the root", imagesOf(r))
	}
	want := describe(t, openRoot(t, plain, RootSpec{Digest: second, Source: src}).Path())
	if got := describe(t, r.Path()); !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("%s, want %s", got[i], want[i])
			}
		}
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// TestImageReads wants each first open, listing and readlink reported, once,
// with its path, also where an image shows the file.
func TestImageReads(t *testing.T) {
	src := vfstest.NewSource(t)
	used := map[digest.Digest]int{}
	f := openImageFS(t, src, func(d digest.Digest) { used[d]++ })
	root := src.Tree(t, append(toolchain("sdk"), "sdk/lib1/link -> file1", "own/file")...)
	learn(t, f, src, lookAround(t), root)
	clear(used)
	var seen readHook
	r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
	if imagesOf(r) != 1 {
		t.Fatalf("%d images in the root", imagesOf(r))
	}
	tool := src.Find(t, root, "sdk/bin/tool")
	before := src.Calls(tool)
	for _, p := range []string{"sdk/bin/tool", "sdk/bin/tool", "sdk/lib1/link", "own/file"} {
		if _, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(r.Path(), "sdk/lib2/file2")); err != nil {
		t.Error(err)
	}
	if _, err := os.ReadDir(filepath.Join(r.Path(), "sdk/lib3")); err != nil {
		t.Error(err)
	}
	// Reported by the name that it has among the inputs.
	if err := os.Rename(filepath.Join(r.Path(), "sdk/lib4"), filepath.Join(r.Path(), "moved")); err != nil {
		t.Error(err)
	}
	if _, err := os.ReadFile(filepath.Join(r.Path(), "moved/file4")); err != nil {
		t.Error(err)
	}
	// A file that the action creates is not an input.
	if err := os.WriteFile(filepath.Join(r.Path(), "sdk/lib3/new"), nil, 0o644); err != nil {
		t.Error(err)
	}
	stats := r.Stats()
	want := []string{
		"directory ", "directory own", "directory sdk", "directory sdk/bin", "directory sdk/lib1",
		"directory sdk/lib3", "directory sdk/lib4", "file own/file", "file sdk/bin/tool", "file sdk/lib1/file1",
		"file sdk/lib4/file4", "symlink sdk/lib1/link",
	}
	if got := seen.list(); !slices.Equal(got, want) {
		t.Errorf("reads:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if stats.FilesRead != 4 || stats.SymlinksRead != 1 || stats.DirectoriesRead != 7 {
		t.Errorf("stats: %+v", stats)
	}
	if n := src.Calls(tool) - before; n != 0 {
		t.Errorf("the source was asked %d times for what is local", n)
	}
	if used[tool] != 1 {
		t.Errorf("the blob was used %d times, want 1", used[tool])
	}
}

// TestImageWithoutBlob takes a blob away after the image was made: it comes
// from the source, and that it is missing is an error with its name.
func TestImageWithoutBlob(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, toolchain("sdk")...)
	learn(t, f, src, lookAround(t), root)
	away, gone := src.Find(t, root, "sdk/lib1/file1"), src.Find(t, root, "sdk/lib2/file2")
	elsewhere := filepath.Join(t.TempDir(), "blob")
	for _, d := range []digest.Digest{away, gone} {
		if err := os.Rename(filepath.Join(src.Dir, vfstest.BlobFile(d)), elsewhere); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(elsewhere, []byte("content of file1"), 0o444); err != nil {
		t.Fatal(err)
	}
	src.Blobs[away] = elsewhere
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if imagesOf(r) != 1 {
		t.Fatalf("%d images in the root", imagesOf(r))
	}
	got, err := os.ReadFile(filepath.Join(r.Path(), "sdk/lib1/file1"))
	if string(got) != "content of file1" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if _, err := os.ReadFile(filepath.Join(r.Path(), "sdk/lib2/file2")); !isEIO(err) {
		t.Errorf("read of what nobody has: %v", err)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), gone.String()) {
		t.Errorf("error %v does not name %s", err, gone)
	}
	if s := r.Stats(); s.FilesRead != 1 {
		t.Errorf("%d files read, want 1", s.FilesRead)
	}
}

// TestImageLacksDirectories has an image of the local directories only. FUSE must show the rest,
// which is in the image after others have read it.
func TestImageLacksDirectories(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, append(toolchain("sdk"), "sdk/deep/a/b/c/file", "sdk/deep/x")...)
	learn(t, f, src, func(root string) {
		for i := range 7 {
			vfstest.Walk(t, filepath.Join(root, fmt.Sprintf("sdk/lib%d", i)))
		}
	}, root)
	deep := src.Find(t, root, "sdk/deep")
	if n := src.Calls(deep); n != 0 {
		t.Fatalf("the source was asked %d times for a directory that nobody looked at", n)
	}
	for i := range image.RenewAfter {
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
		if imagesOf(r) != 1 {
			t.Fatalf("%d images in the root", imagesOf(r))
		}
		got := vfstest.Walk(t, filepath.Join(r.Path(), "sdk/deep"))
		if want := []string{".", "a", "a/b", "a/b/c", "a/b/c/file", "x"}; !slices.Equal(got, want) {
			t.Errorf("shows %q, want %q", got, want)
		}
		if n := len(vfstest.Walk(t, filepath.Join(r.Path(), "sdk"))); n != image.MinEntries+17 {
			t.Errorf("%d entries", n)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	waitUntil(t, "a new image", func() bool {
		view := f.images.View(root, src, f.owner, image.Hooks{}, nil)
		defer view.Release()
		return view.Cover() != nil && view.Cover().Empty()
	})
}

// TestImageIsWritable changes what an image shows as actions do.
func TestImageIsWritable(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, toolchain("sdk")...)
	learn(t, f, src, lookAround(t), root)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	at := func(p string) string { return filepath.Join(r.Path(), p) }
	for _, err := range []error{
		os.Chmod(at("sdk/lib0/file0"), 0o755),
		os.Rename(at("sdk/lib1"), at("lib")),
		os.WriteFile(at("lib/file1"), []byte("changed"), 0o644),
		os.Remove(at("sdk/lib2/file2")),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for p, want := range map[string]string{"sdk/lib0/file0": "content of file0", "lib/file1": "changed", "lib/file8": "content of file8"} {
		if got, err := os.ReadFile(at(p)); string(got) != want || err != nil {
			t.Errorf("%s: %q, %v", p, got, err)
		}
	}
	if in, ok := r.Unchanged("sdk/lib0/file0"); !ok || !in.Executable || in.Digest != src.Find(t, root, "sdk/lib0/file0") {
		t.Errorf("chmod: %+v, %v", in, ok)
	}
	if in, ok := r.Unchanged("lib/file8"); !ok || in.Digest != src.Find(t, root, "sdk/lib1/file8") {
		t.Errorf("moved: %+v, %v", in, ok)
	}
	if _, ok := r.Unchanged("lib/file1"); ok {
		t.Error("a file that was written is unchanged")
	}
	for _, p := range []string{"sdk/lib1/file1", "sdk/lib0/file0"} {
		b, err := os.ReadFile(filepath.Join(src.Dir, vfstest.BlobFile(src.Find(t, root, p))))
		if want := "content of " + filepath.Base(p); string(b) != want || err != nil {
			t.Errorf("blob of %s: %q, %v", p, b, err)
		}
	}
}

// local makes the directories of a tree local, as they are after an action that listed them.
func local(t *testing.T, src *vfstest.Source, root digest.Digest) digest.Digest {
	t.Helper()
	dir, err := src.Directory(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dir.Len() {
		if e := dir.At(i); e.Kind == Directory {
			local(t, src, e.Digest)
		}
	}
	return root
}

// without lists what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// TestImageTimes: an image shows each time that REv2 allows as FUSE does, also that of the first
// moment of the year 1, which is Go's zero time.
func TestImageTimes(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	plain := openFS(t, Options{})
	sdk := src.Tree(t, toolchain("sdk")...)
	m := &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "all", Digest: sdk.Proto()}}}
	for i, at := range []*timestamppb.Timestamp{
		nil,
		{Seconds: -62135596800},
		{Seconds: -62135596800, Nanos: 1},
		{Seconds: -1, Nanos: 999_999_999},
		{},
		{Nanos: 1},
		{Seconds: 946684800, Nanos: 1},
		{Seconds: 253402300799, Nanos: 999_999_999},
		{Seconds: 253402300800},
	} {
		m.Files = append(m.Files, &repb.FileNode{
			Name: fmt.Sprint("file", i), Digest: src.Blob(t, "content").Proto(), NodeProperties: &repb.NodeProperties{Mtime: at},
		})
	}
	root := local(t, src, src.Add(t, m))
	want := describe(t, openRoot(t, plain, RootSpec{Digest: root, Source: src}).Path())
	for i := range 2 {
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
		if imagesOf(r) == 0 || r.images.Grown() != (i == 0) {
			t.Fatalf("root %d shows %d images", i, imagesOf(r))
		}
		if got := describe(t, r.Path()); !slices.Equal(got, want) {
			t.Errorf("root %d:\n%s\nwant\n%s", i, strings.Join(without(got, want), "\n"), strings.Join(without(want, got), "\n"))
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			learn(t, f, src, lookAround(t), root)
		}
	}
}

// TestImageOfRootListed: a command that only lists the root reads it, whatever shows it.
func TestImageOfRootListed(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := local(t, src, src.Tree(t, toolchain("sdk")...))
	for i := range 2 {
		var seen readHook
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src, OnFirstRead: seen.hook})
		if imagesOf(r) == 0 || r.images.Grown() != (i == 0) || !r.images.Cover().Empty() {
			t.Fatalf("root %d shows %d images", i, imagesOf(r))
		}
		if s := r.Stats(); s.DirectoriesRead != 0 {
			t.Errorf("root %d: %+v before anything is read", i, s)
		}
		if _, err := os.ReadDir(r.Path()); err != nil {
			t.Fatal(err)
		}
		want := []string{"directory "}
		if s := r.Stats(); s.DirectoriesRead != 1 || !slices.Equal(seen.list(), want) {
			t.Errorf("root %d: %+v, %q, want %q", i, s, seen.list(), want)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			learn(t, f, src, lookAround(t), root)
		}
	}
}

// TestImageReadsAtRandom reads, changes, moves, links and replaces files of images at random, and
// wants exactly those inputs reported that were opened, by their names among the inputs.
func TestImageReadsAtRandom(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, append(toolchain("sdk"), toolchain("lib")...)...)
	learn(t, f, src, lookAround(t), root)
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var seen readHook
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint(seed), Digest: root, Source: src, OnFirstRead: seen.hook})
		if imagesOf(r) == 0 {
			t.Fatal("the root shows no image")
		}
		at := func(p string) string { return filepath.Join(r.Path(), p) }
		input := map[string]string{} // which input a path shows; none of what is written anew
		var paths []string
		for _, p := range append(toolchain("sdk"), toolchain("lib")...) {
			if p = strings.TrimSuffix(p, "!"); !strings.HasSuffix(p, "/") {
				paths = append(paths, p)
				input[p] = p
			}
		}
		opened := map[string]bool{}
		note := func(p string) {
			if input[p] != "" {
				opened["file "+input[p]] = true
			}
		}
		for i := range 150 {
			p := paths[rnd.IntN(len(paths))]
			other := fmt.Sprintf("%s.%d", p, i)
			var err error
			switch rnd.IntN(8) {
			case 0, 1, 2:
				note(p)
				_, err = os.ReadFile(at(p))
			case 3:
				err = os.Chmod(at(p), 0o755)
			case 4:
				err = os.Rename(at(p), at(other))
				input[other], paths[slices.Index(paths, p)] = input[p], other
			case 5:
				err = os.Link(at(p), at(other))
				input[other], paths = input[p], append(paths, other)
			case 6:
				err = errors.Join(os.WriteFile(at(other), []byte("new"), 0o600), os.Rename(at(other), at(p)))
				input[p] = ""
			case 7:
				note(p)
				var file *os.File
				if file, err = os.OpenFile(at(p), os.O_RDWR|os.O_APPEND, 0); err == nil {
					_, err = file.WriteString("more")
					err = errors.Join(err, file.Close())
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		files := r.Stats().FilesRead
		var got []string
		for _, line := range seen.list() {
			if strings.HasPrefix(line, "file ") {
				got = append(got, line)
			}
		}
		if want := slices.Sorted(maps.Keys(opened)); !slices.Equal(got, want) || int(files) != len(want) {
			t.Errorf("seed %d: %d files read:\n%s\nwant:\n%s", seed, files, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
