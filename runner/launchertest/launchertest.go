package launchertest

import (
	"os"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// Main runs the tests of a package, from its TestMain. The test binary is started again for each launcher and
// each guard of mounts; there Main does not return.
func Main(m *testing.M) {
	runner.MainIfLauncher()
	mounts.MainIfGuard()
	// With -race each launcher would sleep for a second before it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
