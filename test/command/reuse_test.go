package command

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestReuse has runs stand for one another for as long as a worker runs commands in the same way,
// over restarts.
func TestReuse(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	data := filepath.Join(f.Dir, "data")
	input := 0
	// outcome starts a farm, runs a command whose unread input is new each time, and returns what
	// it printed and whether it was run.
	outcome := func(flavor, variable string, args ...string) (printed string, ran bool) {
		f.Helper()
		policies := f.Write("policies.yaml", "policies:\n  - {name: all, environment: {FLAVOR: "+flavor+"}}\n")
		farm, address := f.With(variable).Up(data, append([]string{"--reuse=profile", "--policies", policies}, args...)...)
		defer farm.Drain()
		input++
		f.Write("in/read", "1")
		f.Write("in/unread", strings.Repeat("x", input))
		p := f.Exec(address, "--input", "in", "--", "/bin/sh", "-c", `cat read; echo " $FLAVOR"`)
		if code := p.Wait(); code != 0 {
			f.Fatalf("exit code %d\n%s", code, &p.Stderr)
		}
		reused := farm.WaitFor(&farm.Stderr, reuseLine)[1] == "reused"
		expectMark(f, address, farm.WaitFor(&farm.Stderr, operationLine)[0], reused)
		return p.Stdout.String(), !reused
	}
	for _, c := range []struct {
		what, flavor, variable string
		args                   []string
		ran                    bool
	}{
		{"the first time", "debug", "", nil, true},
		{"an unread input is new", "debug", "", nil, false},
		{"another policy", "release", "", nil, true},
		{"the other policy again", "release", "", nil, false},
		{"the first policy again", "debug", "", nil, false},
		{"without a sandbox", "debug", "", []string{"--sandbox=none"}, true},
		{"another epoch", "debug", "FORERUNNER_REUSE_EPOCH=gcc 14", nil, true},
		{"that epoch again", "debug", "FORERUNNER_REUSE_EPOCH=gcc 14", nil, false},
		{"as another user", "debug", "", []string{"--user", "65534:65534"}, true},
		{"with the network", "debug", "", []string{"--network=on"}, true},
		{"with what it writes in memory", "debug", "FORERUNNER_UPPER_MEMORY=64MiB", nil, true},
		{"with a bound of outputs", "debug", "FORERUNNER_MAX_OUTPUT_BYTES=1MiB", nil, true},
		{"all as at first", "debug", "", nil, false},
	} {
		printed, ran := outcome(c.flavor, c.variable, c.args...)
		if want := "1 " + c.flavor + "\n"; printed != want || ran != c.ran {
			f.Errorf("%s: printed %q, ran %t; want %q, %t", c.what, printed, ran, want, c.ran)
		}
	}
}

// Parts of the lines that the worker and the scheduler log when an action ends.
var (
	reuseLine     = regexp.MustCompile(`action finished.*"reuse":"(\w+)`)
	operationLine = regexp.MustCompile(`operations/[0-9a-f-]{36}`)
)

// expectMark wants an operation to say whether its result is of a former run.
func expectMark(f *programs.Test, address, name string, reused bool) {
	f.Helper()
	told := f.Verb(address, "operation", name)
	if marked := strings.Contains(told, "\nReused") && strings.Contains(told, "the command was not run"); marked != reused {
		f.Errorf("the operation says that its result is reused: %t, want %t\n%s", marked, reused, told)
	}
}
