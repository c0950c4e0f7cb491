package learning

import (
	"context"
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// fakeStorage has messages only.
type fakeStorage map[digest.Digest][]byte

func (f fakeStorage) put(m proto.Message) *repb.Digest {
	b, err := proto.Marshal(m)
	if err != nil {
		panic(err)
	}
	d := digest.Of(digest.SHA256, b)
	f[d] = b
	return d.Proto()
}

func (f fakeStorage) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	if b, ok := f[d]; ok {
		return b, nil
	}
	return nil, digest.ErrNotFound
}

func (f fakeStorage) GetActionResult(context.Context, digest.Digest) (*repb.ActionResult, error) {
	return nil, digest.ErrNotFound
}

// TestProgramsAreReadOnce: the program of a command stays known when the storage no longer has the
// command.
func TestProgramsAreReadOnce(t *testing.T) {
	storage := fakeStorage{}
	s := New(Options{})
	toolOf := func(command *repb.Digest) string {
		op := &request.Operation{Digest: digest.SHA256.Empty(), Action: &repb.Action{CommandDigest: command}}
		s.learnProgram(t.Context(), storage, op)
		return operation.ExtrasOf(op).Tool
	}
	command := storage.put(&repb.Command{Arguments: []string{"/bin/cc", "-c"}})
	script := storage.put(&repb.Command{Arguments: []string{"node", "--trace", "webpack.js", "--watch"}})
	if got := toolOf(script); got != "node webpack.js" {
		t.Errorf("tool %q of a script", got)
	}
	other := proto.CloneOf(storage.put(&repb.Command{Arguments: []string{"/bin/ld"}}))
	if got := toolOf(command); got != "/bin/cc" {
		t.Errorf("tool %q", got)
	}
	clear(storage)
	if got := toolOf(command); got != "/bin/cc" {
		t.Errorf("tool %q of a command that was read before", got)
	}
	if got := toolOf(other); got != "" {
		t.Errorf("tool %q of a command that nobody has", got)
	}
}

// TestProgramsAreBounded stores many programs. Those in use must stay.
func TestProgramsAreBounded(t *testing.T) {
	known := newPrograms()
	of := func(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }
	for i := range 3 * maxPrograms {
		known.put(of(i), "tool")
		if known.get(of(0)) == "" {
			t.Fatalf("one that is in use is gone after %d", i)
		}
	}
	if n := known.known.Len(); n > maxPrograms {
		t.Errorf("%d are remembered", n)
	}
	if known.get(of(1)) != "" {
		t.Error("one that nobody asked for is remembered")
	}
	if known.put(of(2), strings.Repeat("x", maxProgramBytes+1)); known.get(of(2)) != "" {
		t.Error("one with a long name is remembered")
	}
}
