package main

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/settings"
)

func TestVariables(t *testing.T) {
	v := variables{}
	for _, pair := range []string{"CFLAGS=-Wl,-rpath=/x", "A=1,B=2", "EMPTY=", "A=again"} {
		if err := v.Set(pair); err != nil {
			t.Error(err)
		}
	}
	want := variables{"CFLAGS": "-Wl,-rpath=/x", "A": "again", "EMPTY": ""}
	if !maps.Equal(v, want) {
		t.Errorf("%q, want %q", v, want)
	}
	for _, pair := range []string{"", "A", "=1"} {
		if err := v.Set(pair); err == nil {
			t.Errorf("%q is taken", pair)
		}
	}
}

// TestExitCodes has statuses of commands that did not run to their ends, and others that say the
// same of something else.
func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		code    codes.Code
		message string
		want    exitCode
	}{
		{codes.DeadlineExceeded, "command ran longer than its timeout of 1s", 124},
		{codes.DeadlineExceeded, "command ran longer than its timeout of 1s, and was not seen to end: it hangs", 124},
		{codes.DeadlineExceeded, "the worker took longer to collect the outputs than such outputs may take", 1},
		{codes.DeadlineExceeded, "context deadline exceeded", 1},
		{codes.InvalidArgument, `exec "a": not executable (mode -rw-r--r--)`, 126},
		{codes.InvalidArgument, `exec "no such file": is a directory`, 126},
		{codes.InvalidArgument, `exec "a": no such file or directory`, 127},
		{codes.InvalidArgument, `exec "a": no such file or directory in PATH "/bin"`, 127},
		{codes.InvalidArgument, `exec "a": the file is there but not its interpreter "/bin/none"`, 127},
		{codes.InvalidArgument, `exec "a": the file is there but not its dynamic loader`, 127},
		{codes.InvalidArgument, "the command has no arguments", 1},
		{codes.NotFound, `exec "a": no such file or directory`, 1},
	} {
		if got := codeOf(status.New(c.code, c.message)); got != c.want {
			t.Errorf("%s: %s: exit code %d, want %d", c.code, c.message, got, c.want)
		}
	}
}

// TestWhatIsShownLive: unverified output is shown only on a terminal, unless a flag asks for it.
func TestWhatIsShownLive(t *testing.T) {
	terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = terminal.Close() }()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(read.Close(), write.Close()) }()
	for when, want := range map[string][2]bool{"auto": {true, false}, liveOn: {true, true}, liveOff: {false, false}} {
		for i, out := range []*os.File{terminal, write} {
			e := &execution{Live: when}
			if got := e.view(newProgress(out, true), "stdout", out) != nil; got != want[i] {
				t.Errorf("--live=%s, %s: shown %t", when, out.Name(), got)
			}
		}
	}
	cmd := execCommand()
	cmd.SetArgs([]string{"--live=sometimes", "true"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "--live") {
		t.Errorf("got %v", err)
	}
}

func TestOutputsAsTheyAreTyped(t *testing.T) {
	got, err := cleanOutputs("dir", []string{"a/b", "./a", "out/", "a//b/../c", ".", "a", "../x"})
	want := []string{"a/b", "a", "out", "a/c", "", "../x"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

// TestPathsOutsideOfTheInputRoot: they are wrong values of flags, before anything is uploaded.
func TestPathsOutsideOfTheInputRoot(t *testing.T) {
	for _, args := range [][]string{
		{"--output=../x"},
		{"--output=/etc"},
		{"--output=../../x", "--working-directory=dir"},
		{"--working-directory=/abs"},
		{"--working-directory=a/../.."},
		{"--input=../a=."},
		{"--input=/a=."},
	} {
		cmd := execCommand()
		cmd.SetArgs(append(args, "--remote=127.0.0.1:1", "true"))
		name, _, _ := strings.Cut(args[0], "=")
		err := cmd.ExecuteContext(t.Context())
		if wrong := (*settings.WrongError)(nil); !errors.As(err, &wrong) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// TestNoStorage: a storage that does not answer is an error at once.
func TestNoStorage(t *testing.T) {
	e := &execution{Storage: freeport.Address(t)}
	if _, _, err := e.openStorage(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "no storage answers at "+e.Storage) ||
		!strings.HasSuffix(err.Error(), "connection refused") {
		t.Error(err)
	}
}
