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

// A Form is how the lines of a log are written. A program passes its own to the processes beside
// it, as an argument.
type Form string

// The forms. JSON has one object in each line.
const (
	ForPeople Form = "people"
	JSON      Form = "json"
)

// FormOn returns the form of a log: for people only on a terminal, and only if they do not want
// JSON.
func FormOn(out io.Writer, wantsJSON bool) Form {
	if wantsJSON || !IsTerminal(out) {
		return JSON
	}
	return ForPeople
}

// Print writes one line. err may be nil.
func (f Form) Print(out *os.File, level, message string, err error) {
	line := struct { // texts can always be encoded
		Level   string `json:"level"`
		Time    string `json:"ts"`
		Message string `json:"msg"`
		Error   string `json:"error,omitempty"`
	}{Level: level, Time: time.Now().Format(TimeLayout), Message: message}
	if err != nil {
		line.Error = err.Error()
	}
	if f == JSON {
		text, _ := json.Marshal(line)
		fmt.Fprintf(out, "%s\n", text)
		return
	}
	if err != nil {
		message += ": " + line.Error
	}
	fmt.Fprintln(out, message)
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
