package fuse

import (
	"fmt"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// newHandler serves a layer that is not mounted.
func newHandler(t testing.TB, d digest.Digest, source Source) *handler {
	t.Helper()
	driver, err := NewDriver(zap.NewNop(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := driver.NewLayer(t.Context(), Options{
		Digest: d, Source: source, Inodes: NewInodes(), Hooks: Hooks{Read: func(*Node) {}, Blob: func(digest.Digest) {}},
	})
	l.mount.layer.Store(l)
	return &handler{fuse.NewDefaultRawFileSystem(), l.mount}
}

// TestAnswersAreForGood checks what the kernel is told, as it cannot be seen
// from outside how often it asks.
func TestAnswersAreForGood(t *testing.T) {
	src := vfstest.NewSource(t)
	l := newHandler(t, src.Tree(t, "file"), src)
	for name, there := range map[string]bool{"file": true, "absent": false} {
		var out fuse.EntryOut
		status := l.Lookup(nil, &fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}, name, &out)
		if !status.Ok() || out.EntryTimeout() < forGood || (out.NodeId != 0) != there {
			t.Errorf("%s: %v, node %d for %s", name, status, out.NodeId, out.EntryTimeout())
		}
		if there && out.AttrTimeout() < forGood {
			t.Errorf("%s: attributes for %s", name, out.AttrTimeout())
		}
	}
	var out fuse.OpenOut
	if status := l.OpenDir(nil, &fuse.OpenIn{}, &out); status != fuse.ENOSYS {
		t.Errorf("opendir: %v, want ENOSYS so that it is not asked again", status)
	}
}

// BenchmarkLookup is the cost of a lookup on our side, without the kernel's.
func BenchmarkLookup(b *testing.B) {
	for _, n := range []int{20, 1_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			src := vfstest.NewSource(b)
			m := &repb.Directory{}
			content := src.Blob(b, "x").Proto()
			for i := range n {
				m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("entry-%06d", i), Digest: content})
			}
			d := src.Add(b, m)
			dir, err := src.Directory(b.Context(), d)
			if err != nil {
				b.Fatal(err)
			}
			l := newHandler(b, d, src)
			head := fuse.InHeader{NodeId: fuse.FUSE_ROOT_ID}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				var out fuse.EntryOut
				if status := l.Lookup(nil, &head, dir.At(i*7919%n).Name, &out); !status.Ok() {
					b.Fatal(status)
				}
				l.Forget(out.NodeId, 1)
			}
		})
	}
}

// TestOpenWithoutContent opens a file as overlayfs does to copy it up, and then reads it after all.
func TestOpenWithoutContent(t *testing.T) {
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/file")
	h := newHandler(t, root, src)
	read := 0
	h.layer().hooks.Read = func(*Node) { read++ }
	nodes := &h.layer().nodes
	n := nodes.know(nodes.get(1), tree.Entry{Name: "file", Kind: tree.File, Digest: src.Find(t, root, "a/file")}, nil)
	var out fuse.OpenOut
	if status := h.Open(nil, &fuse.OpenIn{InHeader: fuse.InHeader{NodeId: n.id}}, &out); !status.Ok() || out.Fh != 0 {
		t.Fatalf("open: %v, handle %d", status, out.Fh)
	}
	if n := src.Calls(n.Digest); n != 0 {
		t.Errorf("asked for %d times before it is read", n)
	}
	in := &fuse.ReadIn{InHeader: fuse.InHeader{NodeId: n.id}, Offset: 8, Size: 100}
	buf := make([]byte, 100)
	res, status := h.Read(nil, in, buf)
	if !status.Ok() {
		t.Fatal(status)
	}
	if got, status := res.Bytes(buf); string(got) != "of file" || !status.Ok() {
		t.Errorf("read %q, %v", got, status)
	}
	if read != 1 {
		t.Errorf("read %d times, want once", read)
	}
}
