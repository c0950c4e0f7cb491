package scheduler

import (
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

// TestToolsAreReadOnce has the program of a command be known although the command is gone.
func TestToolsAreReadOnce(t *testing.T) {
	storage := newFakeStorage()
	s := &learning{}
	toolOf := func(command *repb.Digest) string {
		op := &core.Operation{Digest: digest.SHA256.Empty(), Action: &repb.Action{CommandDigest: command}}
		s.learnTool(t.Context(), storage, op)
		return extrasOf(op).tool
	}
	command := storage.put(&repb.Command{Arguments: []string{"/bin/cc", "-c"}})
	other := proto.CloneOf(storage.put(&repb.Command{Arguments: []string{"/bin/ld"}}))
	if got := toolOf(command); got != "/bin/cc" {
		t.Errorf("tool %q", got)
	}
	clear(storage.blobs)
	if got := toolOf(command); got != "/bin/cc" {
		t.Errorf("tool %q of a command that was read before", got)
	}
	if got := toolOf(other); got != "" {
		t.Errorf("tool %q of a command that nobody has", got)
	}
}

// TestToolsAreBounded remembers many, of which those stay that are asked for.
func TestToolsAreBounded(t *testing.T) {
	var known tools
	of := func(i int) digest.Digest { return digest.Of(digest.SHA256, fmt.Append(nil, i)) }
	for i := range 5 * maxTools {
		known.put(of(i), "tool")
		if known.get(of(0)) == "" {
			t.Fatalf("one that is in use is gone after %d", i)
		}
	}
	if n := len(known.known.young) + len(known.known.old); n > 2*maxTools {
		t.Errorf("%d are remembered", n)
	}
	if known.get(of(1)) != "" {
		t.Error("one that nobody asked for is remembered")
	}
	if known.put(of(2), strings.Repeat("x", maxToolBytes+1)); known.get(of(2)) != "" {
		t.Error("one with a long name is remembered")
	}
}
