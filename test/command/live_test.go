package command

import (
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestLiveOutput sees what a command prints before it has ended, and all of it once.
func TestLiveOutput(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	farm, address := f.Up(filepath.Join(f.Dir, "data"))
	gate := filepath.Join(f.Dir, "gate")
	client := f.Exec(address, "--timeout", "50s", "--", "/bin/sh", "-c",
		fmt.Sprintf("echo first; echo warning >&2; until [ -e %s ]; do sleep 0.05; done; echo second", gate))
	client.WaitFor(&client.Stdout, regexp.MustCompile(`^first\n$`))
	client.WaitFor(&client.Stderr, regexp.MustCompile(`(?m)^warning$`))
	f.Write("gate", "")
	client.Expect(0, "first\nsecond\n", "warning\n", "!again")
	farm.Drain()
}
