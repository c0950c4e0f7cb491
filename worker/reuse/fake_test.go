package reuse

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/record"
)

const fn = digest.SHA256

// fakeSource has directories in memory. Those that are not local count as fetched.
type fakeSource struct {
	all   map[digest.Digest]*tree.Directory
	local map[digest.Digest]bool // nil: all are
	loads []int                  // how many directories each call of Load fetched
	fails error
}

func (s *fakeSource) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	dir, ok := s.all[d]
	return dir, ok && (s.local == nil || s.local[d])
}

func (s *fakeSource) Directory(_ context.Context, d digest.Digest) (*tree.Directory, error) {
	if s.fails != nil {
		return nil, s.fails
	}
	if dir, ok := s.LocalDirectory(d); ok {
		return dir, nil
	}
	return nil, fmt.Errorf("directory %s is not local", d)
}

func (s *fakeSource) Load(_ context.Context, ds []digest.Digest) error {
	s.loads = append(s.loads, len(ds))
	for _, d := range ds {
		if s.local != nil {
			s.local[d] = true
		}
	}
	return s.fails
}

// files are a tree: "a/b" names a file with that content, "a/b*" an executable one, "a/b@" a
// symlink with that target, "a/b~" a file with another time, "a/" an empty directory.
type files map[string]string

// edited returns a copy in which some paths have another value; "-" removes one.
func (f files) edited(edits files) files {
	out := files{}
	for k, v := range f {
		out[k] = v
	}
	for k, v := range edits {
		if delete(out, k); v != "-" {
			out[k] = v
		}
	}
	return out
}

func (s *fakeSource) tree(t testing.TB, f files) lookback.Tree {
	t.Helper()
	return lookback.Tree{Root: s.put(t, f), Source: s}
}

func (s *fakeSource) put(t testing.TB, f files) digest.Digest {
	t.Helper()
	m, below := &repb.Directory{}, map[string]files{}
	for path, v := range f {
		if head, rest, nested := strings.Cut(path, "/"); nested {
			if below[head] == nil {
				below[head] = files{}
			}
			if rest != "" {
				below[head][rest] = v
			}
			continue
		}
		name := strings.TrimRight(path, "*@~")
		if strings.HasSuffix(path, "@") {
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: v})
			continue
		}
		node := &repb.FileNode{Name: name, Digest: digest.Of(fn, []byte(v)).Proto(), IsExecutable: strings.HasSuffix(path, "*")}
		if strings.HasSuffix(path, "~") {
			node.NodeProperties = &repb.NodeProperties{Mtime: &timestamppb.Timestamp{Seconds: 1}}
		}
		m.Files = append(m.Files, node)
	}
	for name, sub := range below {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: s.put(t, sub).Proto()})
	}
	slices.SortFunc(m.Files, func(a, b *repb.FileNode) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Directories, func(a, b *repb.DirectoryNode) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Symlinks, func(a, b *repb.SymlinkNode) int { return cmp.Compare(a.Name, b.Name) })
	d, raw, err := digest.OfMessage(fn, m)
	check(t, err)
	dir, err := tree.Parse(fn, raw)
	check(t, err)
	if s.all == nil {
		s.all = map[digest.Digest]*tree.Directory{}
	}
	s.all[d] = dir
	return d
}

// fakeStore is a Store in memory.
type fakeStore struct {
	values map[record.Key][]byte
	fails  error
}

func (s *fakeStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	if s.fails != nil {
		return nil, s.fails
	}
	b, ok := s.values[k]
	if !ok {
		return nil, record.ErrNotFound
	}
	return slices.Clone(b), nil
}

func (s *fakeStore) Put(_ context.Context, k record.Key, value []byte) error {
	if s.values == nil {
		s.values = map[record.Key][]byte{}
	}
	s.values[k] = slices.Clone(value)
	return s.fails
}

// fakeStorage lacks some blobs.
type fakeStorage struct {
	lacks map[digest.Digest]bool
	fails error
}

func (s fakeStorage) FindMissing(_ context.Context, ds []digest.Digest) (missing []digest.Digest, err error) {
	for _, d := range ds {
		if s.lacks[d] {
			missing = append(missing, d)
		}
	}
	return missing, s.fails
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func keyOf(t testing.TB, a *repb.Action) record.Key {
	t.Helper()
	k, ok := KeyOf("instance", fn, a, nil)
	if !ok {
		t.Fatal("the action has no key")
	}
	return k
}

// runOf is a run that printed name.
func runOf(name string) lookback.Run {
	return lookback.Run{
		Action: digest.Of(fn, []byte(name)), Worker: "worker of " + name,
		Result: &repb.ActionResult{
			StdoutRaw:         []byte(name),
			ExecutionMetadata: &repb.ExecutedActionMetadata{Worker: "not to be kept"},
		},
		Blobs: []digest.Digest{digest.Of(fn, []byte("blob of "+name))},
	}
}

func sameResult(a, b *repb.ActionResult) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.ExecutionMetadata, b.ExecutionMetadata = nil, nil
	return proto.Equal(a, b)
}
