package facts

import (
	"cmp"
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/printable"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/text"
)

// Outcome returns the short outcome of an operation.
func Outcome(r *historypb.Record) string {
	if r.GetOutcome() == historypb.Outcome_FAILED {
		return Exit(r.GetExitCode())
	}
	if r.GetOutcome() == historypb.Outcome_ERROR {
		return strings.ToLower(text.Words(codes.Code(r.GetCode()).String()))
	}
	return OutcomeName(r.GetOutcome())
}

// Name returns the name of an operation in a list: its target or, if it has none, its command.
func Name(r *historypb.Record) string {
	if r.GetTarget() != "" {
		return r.GetTarget()
	}
	return cmp.Or(printable.Brief(r.GetArguments()), text.Short(r.GetAction()))
}

// OutcomeName returns the name of an outcome.
func OutcomeName(o historypb.Outcome) string {
	return strings.ToLower(strings.ReplaceAll(o.String(), "_", " "))
}

// signalled plus the number of a signal is the exit code of a command that the signal killed.
const signalled = 128

// Exit describes an exit code.
func Exit(code int32) string {
	switch {
	case code == 126:
		return "exit code 126: the command cannot be executed"
	case code == 127:
		return "exit code 127: the command was not found"
	case code > signalled && code < signalled+65:
		if name := unix.SignalName(unix.Signal(code - signalled)); name != "" {
			return fmt.Sprintf("exit code %d: ended by %s", code, name)
		}
	}
	return fmt.Sprintf("exit code %d", code)
}
