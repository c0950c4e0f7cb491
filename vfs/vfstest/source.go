package vfstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// Source holds trees in memory and blobs in files. Tests make it fail or wait. Directories that it
// has returned are local until Forget.
type Source struct {
	Dir string // of the files of blobs

	mu     sync.Mutex
	Dirs   map[digest.Digest]*repb.Directory
	Raw    map[digest.Digest][]byte // encoded directories that are not in Dirs
	ready  map[digest.Digest]*tree.Directory
	Blobs  map[digest.Digest]string        // paths
	fails  map[digest.Digest]error         // of either method
	gates  map[digest.Digest]chan struct{} // a call waits until it is closed
	asked  map[digest.Digest]int           // Calls of either method
	InCall chan digest.Digest              // if not nil, called for each call that waits
}

// NewSource returns an empty Source.
func NewSource(t testing.TB) *Source {
	return &Source{
		Dir:   t.TempDir(),
		Dirs:  map[digest.Digest]*repb.Directory{},
		Raw:   map[digest.Digest][]byte{},
		ready: map[digest.Digest]*tree.Directory{},
		Blobs: map[digest.Digest]string{},
		fails: map[digest.Digest]error{},
		gates: map[digest.Digest]chan struct{}{},
		asked: map[digest.Digest]int{},
	}
}

func (s *Source) enter(ctx context.Context, d digest.Digest) error {
	s.mu.Lock()
	s.asked[d]++
	gate, err, inCall := s.gates[d], s.fails[d], s.InCall
	s.mu.Unlock()
	if gate != nil {
		if inCall != nil {
			inCall <- d
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

// Directory implements vfs.Source.
func (s *Source) Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if err := s.enter(ctx, d); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.Raw[d]
	if m := s.Dirs[d]; m != nil {
		var err error
		if b, err = proto.Marshal(m); err != nil {
			return nil, err
		}
	} else if b == nil {
		return nil, fmt.Errorf("no directory %s", d)
	}
	dir, err := tree.Parse(d.Function(), b)
	if err != nil {
		return nil, err
	}
	s.ready[d] = dir
	return dir, nil
}

// LocalDirectory implements vfs.Source.
func (s *Source) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dir, ok := s.ready[d]
	return dir, ok
}

// Forget makes the next access to any directory ask again.
func (s *Source) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.ready)
}

// OpenBlob implements vfs.Source.
func (s *Source) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if err := s.enter(ctx, d); err != nil {
		return nil, err
	}
	s.mu.Lock()
	p := s.Blobs[d]
	s.mu.Unlock()
	if p == "" {
		return nil, fmt.Errorf("no blob %s", d)
	}
	return os.Open(p)
}

// LocalBlob implements vfs.CopySource.
func (s *Source) LocalBlob(d digest.Digest) ([]byte, bool) {
	s.mu.Lock()
	p := s.Blobs[d]
	s.mu.Unlock()
	b, err := os.ReadFile(p)
	return b, err == nil && digest.Of(d.Function(), b) == d
}

// Know makes the Directory d and all below it local.
func (s *Source) Know(t testing.TB, d digest.Digest) {
	t.Helper()
	dir, err := s.Directory(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dir.Len() {
		if dir.Kind(i) == tree.Dir {
			s.Know(t, dir.At(i).Digest)
		}
	}
}

// BlobFolder is the folder in Source.Dir that has the files of blobs.
const BlobFolder = "sha256"

// BlobFile returns the path in Source.Dir of a blob's file.
func BlobFile(d digest.Digest) string {
	return fmt.Sprintf("%s/%s-%d", BlobFolder, d.Hash(), d.SizeBytes())
}

// ParseBlobFile is the inverse of BlobFile.
func ParseBlobFile(path string) (digest.Digest, bool) {
	name, ok := strings.CutPrefix(path, BlobFolder+"/")
	hash, size, _ := strings.Cut(name, "-")
	n, err := strconv.ParseInt(size, 10, 64)
	if !ok || err != nil {
		return digest.Digest{}, false
	}
	d, err := digest.Parse(digest.SHA256, hash, n)
	return d, err == nil
}

// Blob stores a blob.
func (s *Source) Blob(t testing.TB, content string) digest.Digest {
	t.Helper()
	d := digest.Of(digest.SHA256, []byte(content))
	p := filepath.Join(s.Dir, BlobFile(d))
	if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(content), 0o444)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Blobs[d] = p
	return d
}

// Add stores a Directory, whose lists it sorts.
func (s *Source) Add(t testing.TB, m *repb.Directory) digest.Digest {
	t.Helper()
	slices.SortFunc(m.Files, func(a, b *repb.FileNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Directories, func(a, b *repb.DirectoryNode) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Symlinks, func(a, b *repb.SymlinkNode) int { return strings.Compare(a.Name, b.Name) })
	d, _, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Dirs[d] = proto.Clone(m).(*repb.Directory)
	return d
}

// Tree stores a tree and returns the root's digest. A list of paths describes it: "a/b" is a file,
// "a/b!" an executable one, "a/" an empty directory, "a -> b" a symlink. The content of a file is
// its path.
func (s *Source) Tree(t testing.TB, paths ...string) digest.Digest {
	t.Helper()
	m := &repb.Directory{}
	below := map[string][]string{}
	for _, p := range paths {
		if first, rest, ok := strings.Cut(p, "/"); ok && !strings.Contains(first, " -> ") {
			if below[first] == nil {
				below[first] = []string{}
			}
			if rest != "" {
				below[first] = append(below[first], rest)
			}
			continue
		}
		if name, target, ok := strings.Cut(p, " -> "); ok {
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: target})
			continue
		}
		name, exec := strings.CutSuffix(p, "!")
		m.Files = append(m.Files, &repb.FileNode{
			Name: name, IsExecutable: exec, Digest: s.Blob(t, "content of "+name).Proto(),
		})
	}
	for name, list := range below {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: s.Tree(t, list...).Proto()})
	}
	return s.Add(t, m)
}

// Repeat adds a directory that contains d under that many names, from "000" on.
func (s *Source) Repeat(t testing.TB, d digest.Digest, times int) digest.Digest {
	t.Helper()
	m := &repb.Directory{}
	for i := range times {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("%03d", i), Digest: d.Proto()})
	}
	return s.Add(t, m)
}

// Find returns the digest at a path of the tree.
func (s *Source) Find(t testing.TB, root digest.Digest, p string) digest.Digest {
	t.Helper()
	dir, name := path.Split(p)
	if dir != "" {
		root = s.Find(t, root, strings.TrimSuffix(dir, "/"))
	}
	s.mu.Lock()
	m := s.Dirs[root]
	s.mu.Unlock()
	for _, n := range m.Files {
		if n.Name == name {
			return mustDigest(t, n.Digest)
		}
	}
	for _, n := range m.Directories {
		if n.Name == name {
			return mustDigest(t, n.Digest)
		}
	}
	t.Fatalf("no %s in the tree", p)
	return digest.Digest{}
}

func mustDigest(t testing.TB, m *repb.Digest) digest.Digest {
	t.Helper()
	d, err := digest.FromProto(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Gate makes calls for d wait until the returned function is called.
func (s *Source) Gate(d digest.Digest) (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := make(chan struct{})
	s.gates[d] = g
	return sync.OnceFunc(func() {
		s.mu.Lock()
		delete(s.gates, d)
		s.mu.Unlock()
		close(g)
	})
}

// Fail makes calls for d fail.
func (s *Source) Fail(d digest.Digest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails[d] = err
}

// Calls returns the number of calls for d.
func (s *Source) Calls(d digest.Digest) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[d]
}
