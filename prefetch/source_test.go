package prefetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// roundTrip is how long a call of a storage takes, in the time of synctest.
const roundTrip = 50 * time.Millisecond

// A storage is a Source that lacks everything at first.
type storage struct {
	mu     sync.Mutex
	dirs   map[digest.Digest]*tree.Directory
	remote map[digest.Digest]bool // what can be fetched
	local  map[digest.Digest]bool
	looked map[digest.Digest]bool // directories that were asked for, local or not
	calls  [][]digest.Digest
	// What is under way, and the most that ever was.
	files, bytes, maxFiles, maxBytes int64
	directories, maxDirectories      int64
	last                             time.Time // the end of the last call that fetched something
	parts                            []partedCall
	released                         int // of parts
	yields                           []bool
	trees                            int  // calls for trees; negative: there are none
	hang                             bool // trees never come
}

// A partedCall is one of PrefetchRanges.
type partedCall struct {
	digest digest.Digest
	parts  []span.Span
	calls  int // of the others, before it
}

// PrefetchRanges brings nothing: it only notes what was asked for.
func (s *storage) PrefetchRanges(_ context.Context, d digest.Digest, parts []span.Span) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, partedCall{d, parts, len(s.calls)})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.released++
	}
}

func newStorage() *storage {
	return &storage{
		dirs: map[digest.Digest]*tree.Directory{}, remote: map[digest.Digest]bool{},
		local: map[digest.Digest]bool{}, looked: map[digest.Digest]bool{}, trees: -1,
	}
}

// fileDigest makes all files of one name and size the same blob.
func fileDigest(name string, size int64) digest.Digest {
	d := digest.Of(digest.SHA256, []byte(name))
	d, _ = digest.Parse(digest.SHA256, d.Hash(), size)
	return d
}

// put makes a tree of files and returns its root. A path may end in ":" and a size.
func (s *storage) put(t testing.TB, paths ...string) digest.Digest {
	t.Helper()
	message := &repb.Directory{}
	below := map[string][]string{}
	var names []string
	for _, path := range paths {
		name, rest, deeper := strings.Cut(path, "/")
		if deeper {
			if below[name] == nil {
				names = append(names, name)
			}
			below[name] = append(below[name], rest)
			continue
		}
		name, size, _ := strings.Cut(name, ":")
		bytes := int64(10)
		_, _ = fmt.Sscan(size, &bytes)
		d := fileDigest(name, bytes)
		s.mu.Lock()
		s.remote[d] = true
		s.mu.Unlock()
		message.Files = append(message.Files, &repb.FileNode{Name: name, Digest: d.Proto()})
	}
	slices.Sort(names)
	for _, name := range names {
		child := s.put(t, below[name]...)
		message.Directories = append(message.Directories, &repb.DirectoryNode{Name: name, Digest: child.Proto()})
	}
	slices.SortFunc(message.Files, func(a, b *repb.FileNode) int { return strings.Compare(a.Name, b.Name) })
	return s.putDirectory(t, message)
}

func (s *storage) putDirectory(t testing.TB, message *repb.Directory) digest.Digest {
	t.Helper()
	d, encoded, err := digest.OfMessage(digest.SHA256, message)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := tree.Parse(digest.SHA256, encoded)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs[d], s.remote[d] = dir, true
	return d
}

// at returns the digest of what is at path.
func (s *storage) at(t testing.TB, root digest.Digest, path string) digest.Digest {
	t.Helper()
	if path == "" {
		return root
	}
	name, rest, _ := strings.Cut(path, "/")
	e, ok := s.dirs[root].Find(name)
	if !ok {
		t.Fatalf("no %s in the test's tree", path)
	}
	return s.at(t, e.Digest, rest)
}

func (s *storage) has(d digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.local[d]
}

// fileBytes are those of the files that are here.
func (s *storage) fileBytes() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for d := range s.local {
		if s.dirs[d] == nil {
			bytes += d.SizeBytes()
		}
	}
	return bytes
}

func (s *storage) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked[d] = true
	return s.dirs[d], s.local[d] && s.dirs[d] != nil
}

func (s *storage) PrefetchDirectories(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	s.mu.Lock()
	s.directories++
	s.maxDirectories = max(s.maxDirectories, s.directories)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.directories--
	}()
	return s.bring(ctx, ds)
}

// PrefetchTree brings a tree in a round trip.
func (s *storage) PrefetchTree(ctx context.Context, root digest.Digest, most int, some func()) (fetched []digest.Digest, err error) {
	s.mu.Lock()
	if s.trees < 0 {
		s.mu.Unlock()
		return nil, errors.ErrUnsupported
	}
	s.trees++
	ds := []digest.Digest{root}
	for i := 0; i < len(ds); i++ {
		dir := s.dirs[ds[i]]
		for j := range dir.Len() {
			if d := dir.At(j).Digest; dir.Kind(j) == tree.Dir && s.remote[d] && len(ds) < most {
				ds = append(ds, d)
			}
		}
	}
	hang := s.hang
	s.mu.Unlock()
	if hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	fetched, err = s.bring(ctx, ds)
	some()
	return fetched, err
}

func (s *storage) Prefetch(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	var bytes int64
	for _, d := range ds {
		bytes += d.SizeBytes()
	}
	s.mu.Lock()
	s.files++
	s.bytes += bytes
	s.maxFiles, s.maxBytes = max(s.maxFiles, s.files), max(s.maxBytes, s.bytes)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.files--
		s.bytes -= bytes
	}()
	return s.bring(ctx, ds)
}

func (s *storage) bring(ctx context.Context, ds []digest.Digest) (fetched []digest.Digest, err error) {
	var absent []digest.Digest
	s.mu.Lock()
	for _, d := range ds {
		if !s.local[d] && !slices.Contains(absent, d) {
			absent = append(absent, d)
		}
	}
	if len(absent) > 0 {
		s.calls = append(s.calls, absent)
	}
	s.mu.Unlock()
	if len(absent) == 0 {
		return nil, nil
	}
	select {
	case <-time.After(roundTrip):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	for _, d := range absent {
		if !s.remote[d] {
			err = errors.New("missing")
		} else if !s.local[d] {
			s.local[d] = true
			fetched = append(fetched, d)
		}
	}
	return fetched, err
}

// profileOf is the profile of a run that read just these paths.
func profileOf(paths ...string) *Profile {
	var r Recorder
	for _, path := range paths {
		r.Read(path, tree.File)
	}
	return NewProfile(r.Hashes(), ProfileOptions{})
}

// Yield notes what it is called with.
func (s *storage) Yield(yields bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yields = append(s.yields, yields)
}
