package main

import (
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
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

// TestWhatIsShownLive: only people see what is not vouched for, unless it is asked for.
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
	got := cleanOutputs([]string{"a/b", "./a", "out/", "a//b/../c", ".", "/etc", "../x"})
	want := []string{"a/b", "a", "out", "a/c", "", "/etc", "../x"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
