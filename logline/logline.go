package logline

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// TimeLayout is that of times in JSON.
const TimeLayout = "2006-01-02T15:04:05.000Z07:00"

// JSON returns a line of a log in JSON, without the line break.
func JSON(at time.Time, level, message string) string {
	line, _ := json.Marshal(struct { // texts can always be encoded
		Level   string `json:"level"`
		Time    string `json:"ts"`
		Message string `json:"msg"`
	}{level, at.Format(TimeLayout), message})
	return string(line)
}

// Print writes a message of a process beside the program, such as a launcher: for people on a
// terminal, else in JSON as the program's log.
func Print(out *os.File, level, process, message string) {
	text := process + ": " + message
	if !IsTerminal(out) {
		text = JSON(time.Now(), level, text)
	}
	fmt.Fprintln(out, text)
}

// IsTerminal reports whether out is a terminal.
func IsTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
