package web

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// signalled is what shells and workers add to the number of a signal that ended a command.
const signalled = 128

// exitText says what an exit code means.
func exitText(code int32) string {
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
