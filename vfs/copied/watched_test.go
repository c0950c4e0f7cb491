package copied

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// emptyFiles is the Source of one directory with empty files.
type emptyFiles struct{ dir *tree.Directory }

func (s emptyFiles) LocalDirectory(digest.Digest) (*tree.Directory, bool) { return s.dir, true }
func (s emptyFiles) LocalBlob(digest.Digest) ([]byte, bool)               { return nil, true }

// copyFiles makes a root of so many empty files.
func copyFiles(t *testing.T, c *Copier, n int, read func(string, tree.Entry)) (r *Root, dir string) {
	t.Helper()
	m := &repb.Directory{}
	for i := range n {
		m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("%05d", i), Digest: digest.SHA256.Empty().Proto()})
	}
	d, raw, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := tree.Parse(digest.SHA256, raw)
	if err != nil {
		t.Fatal(err)
	}
	copies, ok := Read(emptyFiles{parsed}, d, 1<<30)
	if !ok {
		t.Fatal("the tree cannot be read")
	}
	in := place(t.TempDir())
	if r, err = c.Copy(copies, in, read); err != nil {
		t.Fatal(err)
	}
	return r, in.Path()
}

// TestRootsThatNobodyAsks: roots that end without Reads, as those of actions whose outputs cannot be
// prepared, together fill the queue of inotify. Nothing is remembered of them.
func TestRootsThatNobodyAsks(t *testing.T) {
	c := newCopier(t)
	const files = 100
	r, dir := copyFiles(t, c, 17000, nil) // more events than the queue takes by default
	r.Leave()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	r, _ = copyFiles(t, c, files, func(string, tree.Entry) {})
	r.Reads()
	if n := len(c.watched); n > files+1 {
		t.Errorf("%d watches are remembered, of a root with %d", n, files+1)
	}
	r.Leave()
	r, dir = copyFiles(t, c, files, func(string, tree.Entry) {})
	if _, err := os.ReadFile(filepath.Join(dir, "00000")); err != nil {
		t.Fatal(err)
	}
	if !r.Reads() {
		t.Error("reads of a later root are incomplete, too")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestReadsAfterClose: a closed Copier does not read from what has its descriptor now.
func TestReadsAfterClose(t *testing.T) {
	c := newCopier(t)
	r, _ := copyFiles(t, c, 1, nil)
	group := c.group
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	if p[0] != group && p[1] != group {
		if err := unix.Dup3(p[0], group, unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		p[0] = group
	}
	if _, err := unix.Write(p[1], []byte("of another")); err != nil {
		t.Fatal(err)
	}
	r.Reads()
	b := make([]byte, 20)
	if n, err := unix.Read(p[0], b); n != 10 || err != nil {
		t.Errorf("the pipe has %d bytes, %v", n, err)
	}
	_ = errors.Join(unix.Close(p[0]), unix.Close(p[1]))
}
