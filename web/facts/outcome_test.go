package facts

import (
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

// TestExit: only the worker's report says that a signal ended the command itself.
func TestExit(t *testing.T) {
	for _, test := range []struct {
		code   int32
		signal string
		want   string
	}{
		{3, "", "exit code 3"},
		{127, "", "exit code 127: the command was not found"},
		{137, "", "exit code 137, as a shell reports SIGKILL"},
		{137, "KILL", "ended by SIGKILL (exit code 137)"},
		{139, "SEGV", "ended by SIGSEGV (exit code 139)"},
		{200, "", "exit code 200"},
	} {
		packed, err := anypb.New(&resourceusage.POSIXResourceUsage{TerminationSignal: test.signal})
		if err != nil {
			t.Fatal(err)
		}
		r := &historypb.Record{
			Outcome: historypb.Outcome_FAILED, ExitCode: test.code,
			Metadata: &repb.ExecutedActionMetadata{AuxiliaryMetadata: []*anypb.Any{packed}},
		}
		if got := Outcome(r); got != test.want {
			t.Errorf("exit code %d, signal %q: %q, want %q", test.code, test.signal, got, test.want)
		}
	}
}

// TestName has targets, of which a list must show something.
func TestName(t *testing.T) {
	r := &historypb.Record{Target: "//a:b", Arguments: []string{"cc", "a b"}, Action: strings.Repeat("0", 64) + "/1"}
	for _, want := range []string{"//a:b", "cc 'a b'"} {
		if got := Name(r); got != want {
			t.Errorf("target %q: %q, want %q", r.GetTarget(), got, want)
		}
		r.Target = " \u00a0"
	}
	if r.Arguments = nil; Name(r) != strings.Repeat("0", 12) {
		t.Errorf("without a command: %q", Name(r))
	}
}
