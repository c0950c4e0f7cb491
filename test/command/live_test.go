package command

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestLiveOutput: a client sees a command's output before the command has ended, and all of it
// once. A client that did not ask for live output gets it at the end.
func TestLiveOutput(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	farm, address := f.Up(filepath.Join(f.Dir, "data"))
	gate := filepath.Join(f.Dir, "gate")
	script := fmt.Sprintf("echo first; echo warning >&2; until [ -e %s ]; do sleep 0.05; done; echo second", gate)
	run := func(args ...string) *programs.Process {
		return f.Exec(address, append(args, "--timeout", "50s", "--", "/bin/sh", "-c", script)...)
	}
	live, later := run("--live=on"), run() // of one run
	live.WaitFor(&live.Stdout, regexp.MustCompile(`^first\n$`))
	live.WaitFor(&live.Stderr, regexp.MustCompile(`(?m)^warning$`))
	if got := later.Stdout.String(); got != "" {
		f.Errorf("%q is printed while the command runs", got)
	}
	f.Write("gate", "")
	for _, client := range []*programs.Process{live, later} {
		client.Expect(0, "first\nsecond\n", "warning\n", "!over")
	}
	farm.Drain()
	startedOver(f)
}

// startedOver damages the input of an action that prints it, so that it runs again. The valid
// output must be printed once, and a client that has seen the first run's output must be told that
// it is void. The input is large, so that the command has opened it long before the worker has
// verified it: a smaller one could be replaced by the right one before.
func startedOver(f *programs.Test) {
	f.Helper()
	const right, wrong = "good bytes\n", "food bytes\n"
	data := filepath.Join(f.Dir, "data")
	farm, address := f.Up(data, "--config", f.Write("farm.yaml", twoStores)) // the other one has the right bytes
	rest := strings.Repeat("\x00", 64<<20)
	f.Write("in/text", right+rest)
	gate := filepath.Join(f.Dir, "second gate")
	run := func(script string, args ...string) *programs.Process {
		return f.Exec(address, append(args, "--timeout", "50s", "--input", "in", "--", "/bin/sh", "-c", script)...)
	}
	run("head -n 1 text").Expect(0, right)
	blob := filepath.Join(data, "worker", "cas", filepath.FromSlash(disk.BlobPath(digest.Of(digest.SHA256, []byte(right+rest)))))
	if b, err := os.ReadFile(blob); err != nil || !bytes.Equal(b, []byte(right+rest)) {
		f.Fatalf("the worker has %d bytes of the input, or others: %v", len(b), err)
	}
	if err := os.WriteFile(blob, []byte(wrong+rest), 0); err != nil {
		f.Fatal(err)
	}
	script := fmt.Sprintf("head -n 1 text; until [ -e '%s' ]; do sleep 0.05; done", gate)
	live, later := run(script, "--live=on"), run(script)
	live.WaitFor(&live.Stdout, regexp.MustCompile(`^`+wrong+`$`))
	f.Write("second gate", "")
	later.Expect(0, right, "!over")
	live.Expect(0, wrong+right, "the action was started over: its earlier output does not count; its stdout is:\n")
	farm.Drain()
}
