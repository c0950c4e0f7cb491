package outputs

import (
	"errors"
	"fmt"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// TestUnchangedHasABound: input directories that are returned as they are have bounds before they
// are decoded, by their names and by their bytes.
func TestUnchangedHasABound(t *testing.T) {
	const entries = maxOutputNames / 10
	m := &repb.Directory{}
	for i := range entries {
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: fmt.Sprintf("%07d", i), Target: "x"})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	d, err := tree.Parse(digest.SHA256, b)
	if err != nil {
		t.Fatal(err)
	}
	o := New(Options{})
	for i := range 10 {
		if err := o.admitUnchanged(d); err != nil {
			t.Fatalf("%d names: %v", (i+1)*entries, err)
		}
	}
	if err := o.admitUnchanged(d); !errors.Is(err, ErrTooMuch) {
		t.Errorf("more than %d names: %v", maxOutputNames, err)
	}
	o = New(Options{})
	o.unchanged = maxUnchanged - len(b) + 1
	if err := o.admitUnchanged(d); !errors.Is(err, ErrTooMuch) {
		t.Errorf("more than %d bytes: %v", maxUnchanged, err)
	}
}
