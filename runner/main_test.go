package runner_test

import (
	"testing"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

func TestMain(m *testing.M) {
	runner.MainIfLauncher()
	helperMain()
	launchertest.Main(m)
}

// removeGroup removes what a killed worker left, as the next worker does.
func removeGroup(t testing.TB, version int, name string) {
	t.Helper()
	if version < 0 {
		return
	}
	var p *cgroup.Parent
	launchertest.Eventually(t, "the group can be taken over", func() (ok bool) {
		var err error
		p, err = cgroup.Open(cgroup.Options{Name: name, Version: version})
		return err == nil // threads of a dead process are counted until they are gone
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
