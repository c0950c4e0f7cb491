package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatch prints three times; the second time fails.
func TestWatch(t *testing.T) {
	for _, test := range []struct {
		name string
		watch
		want string
	}{
		{"file", watch{every: time.Hour}, "2000-01-01T00:00:00Z\n1\n\n2000-01-01T01:00:00Z\nit is away\n\n2000-01-01T02:00:00Z\n3\n\n"},
		{"json", watch{every: time.Hour, plain: true}, "1\nit is away\n3\n"},
		{"terminal", watch{every: time.Hour, terminal: true}, "\x1b[H1\x1b[K\n\x1b[J\x1b[Hit is away\x1b[K\n\x1b[J\x1b[H3\x1b[K\n\x1b[J"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour+time.Minute)
				defer cancel()
				n := 0
				var out strings.Builder
				err := test.repeat(ctx, &out, func(_ context.Context, out io.Writer) error {
					if n++; n == 2 {
						return errors.New("it is away")
					}
					_, err := fmt.Fprintln(out, n)
					return err
				})
				if err != nil || out.String() != test.want {
					t.Errorf("%q, %v; want %q", out.String(), err, test.want)
				}
			})
		})
	}
	failing := func(context.Context, io.Writer) error { return errors.New("no") }
	if err := (&watch{every: time.Hour}).run(t.Context(), io.Discard, failing); err == nil {
		t.Error("an error of the first time does not end it")
	}
}

// TestNothingControlsTheTerminal prints what a client chose, once and again, for people and for
// scripts.
func TestNothingControlsTheTerminal(t *testing.T) {
	const named = "//a:\x1b]0;b\a\u009bc\x9b"
	print := func(_ context.Context, out io.Writer) error {
		_, err := fmt.Fprintln(out, named)
		return err
	}
	for _, test := range []struct {
		watch
		want string
	}{
		{watch{terminal: true}, "//a:\ufffd]0;b\ufffd\ufffdc\ufffd\n"},
		{watch{plain: true}, named + "\n"},
	} {
		var out strings.Builder
		if err := test.run(t.Context(), &out, print); err != nil || out.String() != test.want {
			t.Errorf("%+v: %q, %v; want %q", test.watch, out.String(), err, test.want)
		}
		block, err := test.block(t.Context(), print) // which --watch shows
		if err != nil || string(block) != test.want {
			t.Errorf("%+v: %q, %v; want %q", test.watch, block, err, test.want)
		}
	}
}
