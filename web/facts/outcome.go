package facts

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/printable"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/web/text"
)

// Outcome returns the short outcome of an operation.
func Outcome(r *historypb.Record) string {
	if r.GetOutcome() == historypb.Outcome_FAILED {
		return Exit(r)
	}
	if r.GetOutcome() == historypb.Outcome_ERROR {
		return strings.ToLower(text.Words(codes.Code(r.GetCode()).String()))
	}
	return OutcomeName(r.GetOutcome())
}

// Name returns the name of an operation in a list: its target or, if that shows nothing, its command.
func Name(r *historypb.Record) string {
	if strings.TrimSpace(r.GetTarget()) != "" {
		return r.GetTarget()
	}
	return cmp.Or(printable.Brief(slices.Values(r.GetArguments())), text.Short(r.GetAction()))
}

// OutcomeName returns the name of an outcome.
func OutcomeName(o historypb.Outcome) string {
	return strings.ToLower(strings.ReplaceAll(o.String(), "_", " "))
}

// signalled plus the number of a signal is the exit code of a command that the signal ended, and what
// a shell exits with if its last command was.
const signalled = 128

// Exit describes how the command of an operation ended. The exit code does not tell whether a signal
// ended the command itself; its worker does.
func Exit(r *historypb.Record) string {
	code := r.GetExitCode()
	if name := terminationSignal(r.GetMetadata()); name != "" {
		return fmt.Sprintf("ended by SIG%s (exit code %d)", name, code)
	}
	switch {
	case code == 126:
		return "exit code 126: the command cannot be executed"
	case code == 127:
		return "exit code 127: the command was not found"
	case code > signalled && code < signalled+65:
		if name := unix.SignalName(unix.Signal(code - signalled)); name != "" {
			return fmt.Sprintf("exit code %d, as a shell reports %s", code, name)
		}
	}
	return fmt.Sprintf("exit code %d", code)
}

// terminationSignal returns the signal that ended the command itself, without "SIG"; empty: there was
// none, or the worker does not say.
func terminationSignal(m *repb.ExecutedActionMetadata) string {
	for _, packed := range m.GetAuxiliaryMetadata() {
		if used := (&resourceusage.POSIXResourceUsage{}); packed.MessageIs(used) && packed.UnmarshalTo(used) == nil {
			return used.GetTerminationSignal()
		}
	}
	return ""
}
