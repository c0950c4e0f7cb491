package main

import (
	"regexp"
	"strings"
	"testing"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// TestPrintStreams begins with the result and standard error, of which nothing reaches the terminal
// as it is.
func TestPrintStreams(t *testing.T) {
	raw := func(s string) *historypb.Stream { return &historypb.Stream{Raw: []byte(s)} }
	for _, c := range []struct {
		stderr, stdout *historypb.Stream
		want           string
	}{
		{nil, raw(""), "result: exit code 1\n\n"},
		{raw("\x1b[31mno \x1b[0;1msuch file\x1b]0;title\n"), raw("a\nb"), "result: exit code 1\n\nstandard error:\nno such file[U+001B]]0;title\n\nstandard output:\na\nb\n\n"},
		{&historypb.Stream{Digest: "ab/9000"}, nil, "result: exit code 1\n\nstandard error is in the storage: ab/9000\n\n"},
	} {
		var out strings.Builder
		if err := printStreams(&out, "exit code 1", c.stderr, c.stdout); err != nil || out.String() != c.want {
			t.Errorf("%q, %v, want %q", &out, err, c.want)
		}
	}
}

// TestPrintRecord shows the outcome in words, and the command line.
func TestPrintRecord(t *testing.T) {
	r := &historypb.Record{Outcome: historypb.Outcome_OUT_OF_MEMORY, ExitCode: 137, Code: 4, Arguments: []string{"sh", "-c", "x\x1b[2J"}, ArgumentsCut: true}
	var out strings.Builder
	if err := printRecord(&out, r, nil); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"outcome +out of memory", "code +DeadlineExceeded", `command line +sh -c \$'x\\033\[2J' …`} {
		if !regexp.MustCompile("(?m)^" + line + "$").MatchString(out.String()) {
			t.Errorf("%q is missing in:\n%s", line, &out)
		}
	}
	r, want := &historypb.Record{Outcome: historypb.Outcome_ERROR, Code: 3, Error: "exec \"x\": no such file"}, "result: invalid argument: exec \"x\": no such file\n"
	out.Reset()
	if err := printRecord(&out, r, nil); err != nil || !strings.HasPrefix(out.String(), want) {
		t.Errorf("%v, does not begin with %q:\n%s", err, want, &out)
	}
}

// TestPrintNotMade: what the command did not make comes before its figures.
func TestPrintNotMade(t *testing.T) {
	r := &historypb.Record{Outcome: historypb.Outcome_SUCCEEDED, Operation: "operations/1"}
	var out strings.Builder
	if err := printRecord(&out, r, []string{"bin/a.d", "bin/b.d"}); err != nil {
		t.Fatal(err)
	}
	if want := "result: succeeded\n\noutputs that the command did not make:\n  bin/a.d\n  bin/b.d\n\noperation "; !strings.HasPrefix(out.String(), want) {
		t.Errorf("does not begin with %q:\n%s", want, &out)
	}
}
