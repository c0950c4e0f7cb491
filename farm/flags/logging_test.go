package flags

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// logged returns what is logged to a file.
func logged(t *testing.T, l Logging, write func(*zap.Logger)) (lines []string) {
	t.Helper()
	read, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	before := os.Stderr
	os.Stderr = to
	log, err := l.NewLogger()
	if err != nil {
		t.Fatal(err)
	}
	write(log)
	os.Stderr = before
	_ = to.Close()
	for s := bufio.NewScanner(read); s.Scan(); {
		lines = append(lines, s.Text())
	}
	return lines
}

// TestJSON: what is not on a terminal is JSON, each line, with the stack of an error, and only of
// that.
func TestJSON(t *testing.T) {
	for _, isJSON := range []bool{true, false} {
		lines := logged(t, Logging{JSON: isJSON}, func(log *zap.Logger) {
			log.Warn("hm")
			log.Error("it broke")
			<-Logging{JSON: isJSON}.say("again to end")
		})
		if len(lines) != 3 {
			t.Fatalf("JSON %t: %q", isJSON, lines)
		}
		for i, line := range lines {
			var fields struct {
				Level, Msg, Stacktrace string
				TS                     time.Time // RFC 3339
			}
			if err := json.Unmarshal([]byte(line), &fields); err != nil || fields.Level == "" || fields.Msg == "" || fields.TS.IsZero() {
				t.Errorf("JSON %t: %q: %v", isJSON, line, err)
			}
			if has := strings.Contains(fields.Stacktrace, "TestJSON"); has != (i == 1) {
				t.Errorf("JSON %t: %q", isJSON, line)
			}
		}
	}
}

// TestTerminal: on a terminal all of the log is for people, or with JSON all is JSON.
func TestTerminal(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	before := os.Stderr
	defer func() { os.Stderr = before }()
	if os.Stderr, err = userEnd(terminal); err != nil {
		t.Fatal(err)
	}
	defer func(f *os.File) { _ = f.Close() }(os.Stderr)
	printed := bufio.NewScanner(terminal)
	for _, isJSON := range []bool{true, false} {
		l := Logging{JSON: isJSON}
		log, err := l.NewLogger()
		if err != nil {
			t.Fatal(err)
		}
		log.Warn("hm")
		<-l.say("again to end")
		for range 2 {
			if !printed.Scan() {
				t.Fatal(printed.Err())
			}
			if json.Valid(printed.Bytes()) != isJSON {
				t.Errorf("JSON %t: %q", isJSON, printed.Text())
			}
		}
	}
}

// userEnd returns the end of a terminal that programs have.
func userEnd(terminal *os.File) (*os.File, error) {
	if err := unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	n, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	return os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
}

// TestLast has the error with which a program ends be in its log only if that is asked for, and be
// the error still.
func TestLast(t *testing.T) {
	wrong := &UsageError{Err: errors.New("it is in use")}
	for _, isJSON := range []bool{true, false} {
		l := Logging{JSON: isJSON}
		lines := logged(t, l, func(log *zap.Logger) {
			err := l.Last(log, wrong)
			if IsLogged(err) != isJSON || ExitCode(err) != ExitCode(wrong) || err.Error() != wrong.Error() {
				t.Errorf("JSON %t: %v, %d", isJSON, err, ExitCode(err))
			}
			if l.Last(log, nil) != nil {
				t.Error("an error that is none is logged")
			}
		})
		if isLogged := len(lines) == 1 && strings.Contains(lines[0], "it is in use"); isLogged != isJSON || len(lines) > 1 {
			t.Errorf("JSON %t: %q", isJSON, lines)
		}
	}
}
