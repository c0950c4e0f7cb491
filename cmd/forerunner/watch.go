package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/forerunner-build/forerunner/settings"
)

// watchInterval is that of --watch without a time.
const watchInterval = 2 * time.Second

// A watch prints something again and again, until it is interrupted.
type watch struct {
	every    time.Duration // 0: once
	terminal bool          // out is one: new output overwrites earlier output
	plain    bool          // no line with the time goes before it
}

func (w *watch) flags(f *pflag.FlagSet) {
	f.DurationVar(&w.every, "watch", 0, "print again every `interval`, 2s unless given (--watch=5s), until interrupted")
	settings.Bound(f, "watch", &w.every, settings.Bounds{Min: "0"})
	f.Lookup("watch").NoOptDefVal = watchInterval.String()
}

// run calls print with out, repeatedly if requested. An error ends it the first time; later errors
// are shown, because a server may become available again. An interrupt is no error.
func (w *watch) run(ctx context.Context, out io.Writer, print func(context.Context, io.Writer) error) error {
	if w.every == 0 {
		block, err := w.block(ctx, print)
		_, writeErr := out.Write(block)
		return errors.Join(err, writeErr)
	}
	ctx, release := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer release()
	return w.repeat(ctx, out, print)
}

// repeat is run until ctx ends, which is no error.
func (w *watch) repeat(ctx context.Context, out io.Writer, print func(context.Context, io.Writer) error) error {
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	for first := true; ; first = false {
		block, err := w.block(ctx, print)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			block = fmt.Appendf(block, "%v\n", err)
		}
		if err := w.show(out, block); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// block returns the output of print. Clients choose much of the text, so it must not control the
// terminal; JSON has its own encoding of such characters.
func (w *watch) block(ctx context.Context, print func(context.Context, io.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	err := print(ctx, &b)
	if w.plain {
		return b.Bytes(), err
	}
	return bytes.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' {
			return utf8.RuneError
		}
		return r
	}, b.Bytes()), err
}

// show writes one block.
func (w *watch) show(out io.Writer, block []byte) error {
	var b bytes.Buffer
	switch {
	case w.terminal: // from the top; each line is cleared after its end, and everything below
		b.WriteString("\x1b[H")
		b.Write(bytes.ReplaceAll(block, []byte("\n"), []byte("\x1b[K\n")))
		b.WriteString("\x1b[J")
	case w.plain:
		b.Write(block)
	default:
		fmt.Fprintf(&b, "%s\n%s\n", time.Now().UTC().Format(time.RFC3339), block)
	}
	_, err := out.Write(b.Bytes())
	return err
}
