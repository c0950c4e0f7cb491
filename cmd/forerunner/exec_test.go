package main

import (
	"maps"
	"slices"
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

func TestOutputsAsTheyAreTyped(t *testing.T) {
	got := cleanOutputs([]string{"a/b", "./a", "out/", "a//b/../c", ".", "/etc", "../x"})
	want := []string{"a/b", "a", "out", "a/c", "", "/etc", "../x"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
