package sandbox_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestViewIsAList: of the machine's top folders and /etc a command sees what is listed, and no more.
func TestViewIsAList(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	top := strings.Fields(launchertest.Say(t, l, launchertest.Shell(t, "ls /")))
	for _, name := range top {
		known := name == "etc" || name == "var" || strings.Contains(strings.Join(append(sandbox.DefaultShow, sandbox.OwnFolders...), " ")+" ", name)
		if !known {
			t.Errorf("/%s is shown", name)
		}
	}
	for _, name := range strings.Fields(launchertest.Say(t, l, launchertest.Shell(t, "ls -A /etc"))) {
		listed := sandbox.OwnEtc[name] != "" || name == "resolv.conf"
		for _, pattern := range sandbox.ShownInEtc {
			first, _, _ := strings.Cut(pattern, "/")
			if ok, _ := filepath.Match(first, name); ok {
				listed = true
			}
		}
		if !listed {
			t.Errorf("/etc/%s is shown", name)
		}
	}
	if got := launchertest.Say(t, l, launchertest.Shell(t, "ls /var /sys /sys/fs /sys/devices /var/tmp /run /home")); strings.Contains(got, "class") || strings.Contains(got, "lib") {
		t.Errorf("shown: %s", got)
	}
	if got := launchertest.Say(t, l, launchertest.Shell(t, "cut -d: -f1 /etc/passwd | tr '\\n' ' '")); got != "root nobody " {
		t.Errorf("users %q", got)
	}
}
