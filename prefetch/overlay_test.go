package prefetch

import (
	"errors"
	"math"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestLayOverOfTheSameFolderOftenEnough has a tree of 40 folders, each of which has the next one
// twice: a terabyte of files that nobody read is counted, not walked.
func TestLayOverOfTheSameFolderOftenEnough(t *testing.T) {
	for _, c := range []struct {
		depth int
		want  Amount
	}{
		{40, Amount{1 << 40, 3 << 40}},
		{70, Amount{math.MaxInt64, math.MaxInt64}},
	} {
		list := []*repb.Directory{{Files: []*repb.FileNode{{
			Name: "f", Digest: digest.Of(digest.SHA256, []byte("abc")).Proto(),
		}}}}
		top, _, err := digest.OfMessage(digest.SHA256, list[0])
		if err != nil {
			t.Fatal(err)
		}
		for range c.depth {
			m := &repb.Directory{Directories: []*repb.DirectoryNode{
				{Name: "a", Digest: top.Proto()}, {Name: "b", Digest: top.Proto()},
			}}
			if top, _, err = digest.OfMessage(digest.SHA256, m); err != nil {
				t.Fatal(err)
			}
			list = append(list, m)
		}
		root, err := LayOver(Record{}, top, list, 10)
		if err != nil {
			t.Fatal(err)
		}
		if got := root.All(); got != c.want || len(root.Children) != 2 {
			t.Errorf("depth %d: got %+v below %d entries, want %+v", c.depth, got, len(root.Children), c.want)
		}
		if _, err := LayOver(Record{}, top, list, 1); !errors.Is(err, ErrTooLarge) {
			t.Errorf("depth %d: got %v", c.depth, err)
		}
	}
}
