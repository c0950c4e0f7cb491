package operator

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/test/programs"
)

// TestConfiguration holds flags, environment and --print-config of each program together.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	for program, flags := range map[string][]string{
		"forerunner up":        {"--data", "--listen", "--slots", "--platform", "--size-class", "--cache-size", "--http"},
		"forerunner profile":   {"--remote", "--profiles", "--tree", "--suggest"},
		"forerunner exec":      {"--remote", "--input", "--output", "--download", "--platform", "--timeout"},
		"forerunner-scheduler": {"--listen", "--http", "--storage", "--data", "--cache-size", "--state"},
		"forerunner-worker": {
			"--scheduler", "--storage", "--slots", "--size-class", "--platform",
			"--id", "--data", "--cache-size", "--http", "--state",
		},
	} {
		for _, ask := range []string{"--help", "--print-config"} {
			p := f.Start(append(strings.Fields(program), ask)...)
			if code := p.Wait(); code != 0 {
				f.Errorf("%s %s: exit code %d", program, ask, code)
			}
			for _, flag := range flags {
				if !strings.Contains(p.Stdout.String(), flag) {
					f.Errorf("%s %s does not name %s", program, ask, flag)
				}
			}
		}
	}
	expectConfig := func(want string, args ...string) {
		f.Helper()
		p := f.Start(append(args, "--print-config")...)
		if p.Wait(); !strings.Contains(p.Stdout.String(), want+"\n") {
			f.Errorf("%s: no %s in\n%s", args, want, &p.Stdout)
		}
	}
	expectConfig("--slots=2", "forerunner", "up") // from the environment
	expectConfig("--slots=5", "forerunner", "up", "--slots", "5")
	f.Start("forerunner", "exec").Expect(2, "", "command")
	f.Start("forerunner-worker", "--slots", "many").Expect(2, "", "--slots")
	f.Start("forerunner-worker", "--data", "worker", "--cache-size", "huge").Expect(2, "", "--cache-size")
}
