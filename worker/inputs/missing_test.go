package inputs

import (
	"context"
	"errors"
	"fmt"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	inputtree "github.com/forerunner-build/forerunner/cas/tree"
)

func (k *knownDirectories) Load(context.Context, []digest.Digest) error { return nil }

// lacking is a storage that has all but these.
type lacking map[digest.Digest]bool

func (l lacking) FindMissing(_ context.Context, ds []digest.Digest) (missing []digest.Digest, err error) {
	for _, d := range ds {
		if l[d] {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// TestAllThatIsMissing: an error about one missing input names all missing inputs that can be
// found, each once.
func TestAllThatIsMissing(t *testing.T) {
	of := func(text string) digest.Digest { return digest.Of(digest.SHA256, []byte(text)) }
	k := &knownDirectories{known: map[digest.Digest]*inputtree.Directory{}}
	leaf := k.put(t, &repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: of("a").Proto()}, {Name: "b", Digest: of("b").Proto()}}})
	root := k.put(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "x", Digest: leaf.Proto()}, {Name: "y", Digest: leaf.Proto()}}})
	s := Search{
		Named: []digest.Digest{of("command")}, Root: root, Inputs: k, Log: zap.NewNop(),
		Storage: lacking{of("a"): true, of("b"): true, of("command"): true},
	}
	first := fmt.Errorf("read: %w", &cas.MissingError{Digests: []digest.Digest{of("a")}})
	var all *cas.MissingError
	if err := s.All(t.Context(), first); !errors.As(err, &all) || len(all.Digests) != 3 {
		t.Errorf("got %v", err)
	}
	s.Storage = lacking{of("a"): true}
	if err := s.All(t.Context(), first); err != first {
		t.Errorf("nothing else is missing: %v", err)
	}
	if other := errors.New("another fault"); s.All(t.Context(), other) != other {
		t.Error("another fault is made one of missing inputs")
	}
}
