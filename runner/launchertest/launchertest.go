package launchertest

import (
	"fmt"
	"os"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// Main runs the tests of a package, from its TestMain. The test binary is started again for each
// launcher and each guard of mounts; there Main does not return. It fails them if a process of a
// Command is left at the end.
func Main(m *testing.M) {
	runner.MainIfLauncher()
	mounts.MainIfGuard()
	// With -race each launcher would sleep for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	code := m.Run()
	if left := Left(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}
