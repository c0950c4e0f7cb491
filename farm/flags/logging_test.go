package flags

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"go.opentelemetry.io/otel"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/grpclog"

	"github.com/forerunner-build/forerunner/settings"
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

// TestHiddenCharacters: a log of JSON has every text, and none of its characters is unseen.
func TestHiddenCharacters(t *testing.T) {
	const name = "//a\u202eb\u200b größer"
	lines := logged(t, Logging{JSON: true}, func(log *zap.Logger) { log.Info("done", zap.String("target", name)) })
	var fields struct{ Caller, Target string }
	if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &fields) != nil || fields.Target != name || fields.Caller == "" {
		t.Errorf("%q", lines)
	}
	if !strings.Contains(lines[0], `//a\u202eb\u200b größer`) {
		t.Errorf("%q", lines)
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

// TestLast: with --log-json the error with which a program ends is a line of its log, and otherwise
// it is for main to print.
func TestLast(t *testing.T) {
	wrong := &UsageError{Err: errors.New("it is in use")}
	for _, test := range []struct {
		args   []string
		isJSON bool
		code   int
	}{
		{[]string{"--log-json"}, true, exitUsage},
		{nil, false, exitUsage},
		{[]string{"--no-such-flag", "--log-json"}, true, exitUsage},
		{[]string{"--no-such-flag"}, false, exitUsage},
		{[]string{"--log-json=false"}, false, exitUsage},
	} {
		var l Logging
		cmd := NewCommand("program", "", "", settings.Of(&l), func(*cobra.Command, []string) error { return wrong })
		cmd.SetArgs(test.args)
		before := os.Args
		os.Args = append([]string{"program"}, test.args...)
		var err error
		lines := logged(t, l, func(*zap.Logger) { err = Execute(t.Context(), cmd) })
		os.Args = before
		if IsLogged(err) != test.isJSON || ExitCode(err) != test.code {
			t.Errorf("%q: %v, %d", test.args, err, ExitCode(err))
		}
		if !test.isJSON {
			if len(lines) > 0 {
				t.Errorf("%q: %q is printed", test.args, lines)
			}
			continue
		}
		var line struct{ Level, Msg, Error string }
		if len(lines) != 1 || json.Unmarshal([]byte(lines[0]), &line) != nil || line.Msg != "program ends" || line.Error != err.Error() {
			t.Errorf("%q: %q", test.args, lines)
		}
	}
}

// TestLibraries: what libraries print goes to the log.
func TestLibraries(t *testing.T) {
	lines := logged(t, Logging{JSON: true}, func(*zap.Logger) {
		stdlog.Print("http: a handshake failed")
		grpclog.Error("too many pings")
		grpclog.Info("a channel was made")
		otel.Handle(errors.New("no collector"))
		_ = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1}).Ping(t.Context()).Err()
	})
	for _, want := range []string{"a handshake failed", "too many pings", "no collector"} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, want) }) {
			t.Errorf("%q is not in the log: %q", want, lines)
		}
	}
	for _, line := range lines {
		if !json.Valid([]byte(line)) || strings.Contains(line, "a channel was made") {
			t.Errorf("%q is in the log", line)
		}
	}
}
