package fuse

import (
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/budget"
)

// TestForgottenNodes checks the table of nodes as the kernel would use it.
func TestForgottenNodes(t *testing.T) {
	memory := budget.New(1<<20, 1)
	table := nodeTable{inodes: NewInodes(), memory: memory.Holder()}
	table.init(digest.Of(digest.SHA256, nil), nil)
	top := table.get(1)
	a := table.know(top, tree.Entry{Name: "a", Kind: tree.Dir}, nil)
	b := table.know(a, tree.Entry{Name: "b", Kind: tree.File}, nil)
	if again := table.know(a, tree.Entry{Name: "b", Kind: tree.File}, nil); again != b {
		t.Error("one path has two nodes")
	}
	ino := b.ino
	table.forget(a.id, 1) // the parent first, as a batch may have it
	if table.get(a.id) != a {
		t.Error("a node with children was dropped")
	}
	table.forget(b.id, 1)
	if table.get(b.id) != b {
		t.Error("a node was dropped that the kernel knows")
	}
	table.forget(b.id, 1)
	if len(table.byID) != 1 || len(top.children) != 0 {
		t.Errorf("%d nodes are left", len(table.byID))
	}
	table.forget(1, 1)
	table.forget(b.id, 1)
	a = table.know(top, tree.Entry{Name: "a", Kind: tree.Dir}, nil)
	b2 := table.know(a, tree.Entry{Name: "b", Kind: tree.File}, nil)
	if b2.id == b.id || b2.ino != ino {
		t.Errorf("after it was forgotten: id %d then %d, inode %d then %d", b.id, b2.id, ino, b2.ino)
	}
	if used, want := memory.Used(), a.bytes()+b2.bytes(); used != want {
		t.Errorf("two nodes take %d bytes, want %d", used, want)
	}
}
