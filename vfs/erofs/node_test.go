package erofs

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestNode asks for all inodes of trees and wants each entry as it was given.
func TestNode(t *testing.T) {
	big := file("big", 5<<30, "/sha256/aa/big")
	late := file("late", 3, "/sha256/bb/late")
	late.MTime = time.Unix(1, 5)
	trees := []Entry{dir("", dir("sub", big, file("empty", 0, "/ignored"), late))}
	for seed := range uint64(5) {
		r := &randomTree{rand.New(rand.NewPCG(seed, 3)), 300}
		trees = append(trees, r.dir("", 0))
	}
	for i := range trees {
		b := write(t, trees[i], Options{Epoch: epoch})
		m, err := OpenImage(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]Node{}
		addNodes(want, &trees[i], "")
		for nid := range uint64(len(b) / slotSize) {
			got, err := m.Node(nid)
			if err != nil {
				continue
			}
			w := want[got.Path]
			if got.Mode&unix.S_IFMT == unix.S_IFDIR {
				w.Size = got.Size
			}
			if got != w {
				t.Errorf("tree %d: inode %d is %+v, want %+v", i, nid, got, w)
			}
			if again, err := m.Node(nid); again != got || err != nil {
				t.Errorf("tree %d: inode %d is %+v, %v, and was %+v", i, nid, again, err, got)
			}
			delete(want, got.Path)
		}
		if len(want) > 0 {
			t.Errorf("tree %d: %d entries were not found", i, len(want))
		}
	}
}

func addNodes(to map[string]Node, e *Entry, path string) {
	n := Node{Path: path, Mode: e.Mode}
	switch e.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		n.Size = e.Size
		if e.Size > 0 {
			n.Redirect = e.Redirect
		}
	case unix.S_IFLNK:
		n.Size = int64(len(e.Target))
	}
	to[path] = n
	for i := range e.Entries {
		child := &e.Entries[i]
		if path != "" {
			addNodes(to, child, path+"/"+child.Name)
		} else {
			addNodes(to, child, child.Name)
		}
	}
}
