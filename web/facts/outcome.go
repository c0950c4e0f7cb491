package facts

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/web/text"
)

// Outcome is the outcome of an operation.
func Outcome(r *historypb.Record) string {
	if r.GetOutcome() == historypb.Outcome_FAILED {
		return Exit(r.GetExitCode())
	}
	if r.GetOutcome() == historypb.Outcome_ERROR {
		return strings.ToLower(text.Words(codes.Code(r.GetCode()).String()))
	}
	return OutcomeName(r.GetOutcome())
}

// OutcomeName writes an outcome.
func OutcomeName(o historypb.Outcome) string {
	return strings.ToLower(strings.ReplaceAll(o.String(), "_", " "))
}

// signalled is what shells and workers add to the number of a signal that killed a command.
const signalled = 128

// Exit says what an exit code means.
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
