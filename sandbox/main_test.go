package sandbox_test

import (
	"os"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// TestMain also lets this binary be a command that attacks, and a worker without rights that has
// all attacks tried.
func TestMain(m *testing.M) {
	runner.MainIfLauncher()
	abuseMain()
	if dir := os.Getenv(rootlessVar); dir != "" {
		rootlessMain(dir)
	}
	if dir := os.Getenv(inheritVar); dir != "" {
		inheritMain(dir)
	}
	launchertest.Main(m)
}
