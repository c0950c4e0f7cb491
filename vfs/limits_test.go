package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// largeTrees, if set, has the tests of limits walk all of a tree with a million
// files instead of a small part of it, and more roots be there at once.
const largeTrees = "FORERUNNER_LARGE_TREES"

// madeSource makes up trees of dirs folders "d000" and on with files files
// "f0000" and on each, without keeping any of it. The content of a file is its
// number in the tree, madeSize digits; each tree has other digests.
type madeSource struct {
	dir         string // for blobs
	dirs, files int

	mu   sync.Mutex
	last map[digest.Digest]*tree.Directory // at most lastMade
}

const (
	madeSize = 16
	lastMade = 1000
)

// madeDigest returns a digest without content: its hash encodes its position.
func madeDigest(level byte, root, number int) (digest.Digest, error) {
	return digest.Parse(digest.SHA256, fmt.Sprintf("%02x%030x%032x", level, root, number), madeSize)
}

func (s *madeSource) tree(i int) (digest.Digest, error) { return madeDigest(0, i, 0) }

func decodeMade(d digest.Digest) (level byte, root, number int, err error) {
	_, err = fmt.Sscanf(d.Hash(), "%02x%030x%032x", &level, &root, &number)
	return level, root, number, err
}

func (s *madeSource) Directory(_ context.Context, d digest.Digest) (*tree.Directory, error) {
	m, err := s.message(d)
	if err != nil {
		return nil, err
	}
	b, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	dir, err := tree.Parse(digest.SHA256, b)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil || len(s.last) == lastMade {
		s.last = map[digest.Digest]*tree.Directory{}
	}
	s.last[d] = dir
	return dir, nil
}

func (s *madeSource) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, ok := s.last[d]
	return dir, ok
}

func (s *madeSource) message(d digest.Digest) (*repb.Directory, error) {
	level, root, number, err := decodeMade(d)
	if err != nil {
		return nil, err
	}
	m := &repb.Directory{}
	if level == 0 {
		for i := range s.dirs {
			child, err := madeDigest(1, root, i)
			if err != nil {
				return nil, err
			}
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("d%03d", i), Digest: child.Proto()})
		}
		return m, nil
	}
	for i := range s.files {
		child, err := madeDigest(2, root, number*s.files+i)
		if err != nil {
			return nil, err
		}
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("f%04d", i), Digest: child.Proto()})
	}
	return m, nil
}

func (s *madeSource) OpenBlob(_ context.Context, d digest.Digest) (*os.File, error) {
	_, _, number, err := decodeMade(d)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Open(s.dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "blob")
	_, err = fmt.Fprintf(f, "%0*d", madeSize, number)
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// file returns the path and the content of a file.
func (s *madeSource) file(number int) (p, content string) {
	return fmt.Sprintf("d%03d/f%04d", number/s.files, number%s.files), fmt.Sprintf("%0*d", madeSize, number)
}

// TestManyLargeRoots has many roots of 20,000 files at once, 200 with largeTrees, in a process that
// may have no more than 1024 descriptors, and reads more files than that.
func TestManyLargeRoots(t *testing.T) {
	openFS(t, Options{}) // skips where there is no FUSE
	for _, way := range []string{"passthrough", "cached"} {
		t.Run(way, func(t *testing.T) {
			got := startChild(t, "helper").do("manyroots", t.TempDir(), way)
			if strings.HasPrefix(got, "error: ") {
				t.Fatal(got)
			}
			t.Log(got)
		})
	}
}

const manyDescriptors = 1024

// serveManyRoots mounts the roots, reads a little in each, a tenth of one, and closes them.
func serveManyRoots(dir, way string) (report string, err error) {
	limit := unix.Rlimit{Cur: manyDescriptors, Max: manyDescriptors}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return "", err
	}
	f, err := Open(Options{
		MountDir: filepath.Join(dir, "mounts"), UpperDir: filepath.Join(dir, "upper"), DisablePassthrough: way == "cached",
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	src := &madeSource{dir: dir, dirs: 500, files: 40}
	before, start := residentKB(), time.Now()
	manyRoots := 50
	if os.Getenv(largeTrees) != "" {
		manyRoots = 200
	}
	roots := make([]*Root, manyRoots)
	for i := range roots {
		d, err := src.tree(i)
		if err != nil {
			return "", err
		}
		if roots[i], err = f.NewRoot(context.Background(), RootSpec{Name: strconv.Itoa(i), Digest: d, Source: src}); err != nil {
			return "", err
		}
	}
	mounted, took := residentKB(), time.Since(start)
	var g errgroup.Group
	g.SetLimit(16)
	for i, r := range roots {
		g.Go(func() error { return readSome(src, r, i, manyDescriptors*5/4/manyRoots) })
	}
	g.Go(func() error {
		list, err := walkAll(filepath.Join(roots[0].Path(), "d000"))
		if err == nil && list != src.files+1 {
			err = fmt.Errorf("%d entries below a folder", list)
		}
		return err
	})
	if err := g.Wait(); err != nil {
		return "", err
	}
	fds, err := os.ReadDir("/proc/self/fd")
	return fmt.Sprintf("%d roots in %s; resident %d kB, %d kB when mounted, %d kB when used; %d descriptors",
		manyRoots, took.Round(time.Millisecond), before, mounted, residentKB(), len(fds)), err
}

// readSome reads n files of a root, in as many folders, and writes one.
func readSome(src *madeSource, r *Root, seed, n int) error {
	for i := range n {
		number := (seed*7919 + i*104729) % (src.dirs * src.files)
		p, want := src.file(number)
		if got, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil || string(got) != want {
			return fmt.Errorf("root %d: %s is %q, %w", seed, p, got, err)
		}
	}
	p, _ := src.file(seed)
	if err := os.WriteFile(filepath.Join(r.Path(), p), []byte("x"), 0o600); err != nil {
		return err
	}
	return r.Err()
}

func residentKB() int {
	b, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	var kb int
	_, _ = fmt.Sscan(rest, &kb)
	return kb
}

func walkAll(dir string) (entries int, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		entries++
		if err == nil && !e.IsDir() {
			_, err = e.Info()
		}
		return err
	})
	return entries, err
}

// TestMillionFiles walks a part of a root with a million files, or all of it if
// the environment says so, and opens some.
func TestMillionFiles(t *testing.T) {
	f := openFS(t, Options{})
	h := startChild(t, "helper")
	src := &madeSource{dir: t.TempDir(), dirs: 1000, files: 1000}
	d, err := src.tree(1)
	if err != nil {
		t.Fatal(err)
	}
	r := openRoot(t, f, RootSpec{Digest: d, Source: src})
	if err := readSome(src, r, 3, 30); err != nil {
		t.Error(err)
	}
	if got := r.Stats(); got.FilesRead != 30 || got.DirectoriesRead > 32 {
		t.Errorf("after a few files: %+v", got)
	}
	walked := []string{"d000", "d999"}
	for i := range 10 {
		walked = append(walked, fmt.Sprintf("d%03d", 100+i))
	}
	want := len(walked) * (src.files + 1)
	if os.Getenv(largeTrees) != "" {
		walked, want = []string{"."}, 1+src.dirs*(1+src.files)
	}
	before, start, entries := residentKB(), time.Now(), 0
	for _, p := range walked {
		n, err := strconv.Atoi(h.do("walk", filepath.Join(r.Path(), p)))
		if err != nil {
			t.Fatal(err)
		}
		entries += n
	}
	if entries != want {
		t.Errorf("%d entries, want %d", entries, want)
	}
	t.Logf("%d entries in %s, resident memory from %d kB to %d kB", entries, time.Since(start), before, residentKB())
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	start = time.Now()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	t.Logf("closed in %s", time.Since(start))
}

// TestWideDirectoryOfLongNames lists 20,000 names of 255 bytes, 100,000 with largeTrees, and looks
// many of them up, in a folder that has been written to as well.
func TestWideDirectoryOfLongNames(t *testing.T) {
	width := 20_000
	if os.Getenv(largeTrees) != "" {
		width = 100_000
	}
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	blob := src.Blob(t, "x").Proto()
	m := &repb.Directory{}
	want := make([]string, width)
	for i := range want {
		want[i] = fmt.Sprintf("%06d%s", i, strings.Repeat("n", tree.MaxName-6))
		m.Files = append(m.Files, &repb.FileNode{Name: want[i], Digest: blob})
	}
	root := src.Add(t, &repb.Directory{
		Directories: []*repb.DirectoryNode{{Name: "wide", Digest: src.Add(t, m).Proto()}},
	})
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	dir := filepath.Join(r.Path(), "wide")
	check := func() {
		t.Helper()
		entries, err := os.ReadDir(dir)
		got := make([]string, len(entries))
		for i, e := range entries {
			got[i] = e.Name()
		}
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("listed %d names, want %d; %v", len(got), len(want), err)
		}
		for i := 0; i < len(want); i += 197 {
			if _, err := os.Lstat(filepath.Join(dir, want[i])); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(filepath.Join(dir, want[i][1:])); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a name that is not there: %v", err)
			}
		}
	}
	check()
	for i := 0; i < 100; i += 2 {
		if err := os.Remove(filepath.Join(dir, want[i*width/110])); err != nil {
			t.Fatal(err)
		}
		want[i*width/110] = ""
	}
	want = slices.DeleteFunc(want, func(s string) bool { return s == "" })
	if err := os.WriteFile(filepath.Join(dir, "zz"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want = append(want, "zz")
	check()
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}
