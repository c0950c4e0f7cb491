package sandbox_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// A Java program sizes its thread pools and its heap by its slot, with and without a
// sandbox. Java is there because Bazel, which other tests need, is written in it.
func TestJavaSeesItsSlot(t *testing.T) {
	java, err := exec.LookPath("java")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	machine, err := cgroup.Measure()
	if err != nil {
		t.Fatal(err)
	}
	slot := launchertest.Slot(t, 0)
	if err := slot.Limit(cgroup.Limits{CPUs: machine.CPUs[:1], Memory: 256 << 20}); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*runner.Launcher{"none": launchertest.Plain(t, slot), "namespaces": launchertest.Sandboxed(t, slot)} {
		cmd := launchertest.Command(t, java, "-XshowSettings:system", "-version")
		launchertest.Run(t, l, cmd)
		said := launchertest.Read(t, cmd.Stderr)
		for _, want := range []string{"Effective CPU Count: 1\n", "Memory Limit: 256.00M\n"} {
			if !strings.Contains(said, want) {
				t.Errorf("sandbox %s: Java does not say %q:\n%s", name, want, said)
			}
		}
	}
}
