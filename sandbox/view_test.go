package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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

// TestEtcIsAsOnTheMachine: what is copied, as what is mounted, has the contents, modes and owners of the machine's, and nothing
// in it can be written. What is copied needs no mount.
func TestEtcIsAsOnTheMachine(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	files := "$(cd /etc; ls -d ld.so.cache ld.so.conf ld.so.conf.d ld.so.conf.d/* nsswitch.conf services ssl/certs alternatives alternatives/awk login.defs 2>/dev/null)"
	script := "cd /etc; for f in " + files + "; do stat -c '%n %F %a %u %g %s %Y' $f | sed 's/directory \\(.*\\) [0-9]* \\([0-9]*\\)$/\\1 \\2/'; [ -d $f ] && ls -A $f || sha256sum <$f; done"
	want, err := exec.Command("/bin/sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := launchertest.Say(t, l, launchertest.Shell(t, script)); got != strings.TrimSuffix(string(want), "\n") {
		t.Errorf("says %s\nwant %s", got, want)
	}
	if got := launchertest.Say(t, l, launchertest.Shell(t, "for f in "+files+"; do touch -c /etc/$f 2>/dev/null && echo $f; done; true")); got != "" {
		t.Errorf("can be written: %s", got)
	}
	const small = "/etc/ld.so.conf"
	var etc, file unix.Stat_t
	if unix.Stat("/etc", &etc) != nil || unix.Stat(small, &file) != nil || etc.Dev != file.Dev || int(file.Uid) != os.Geteuid() {
		return // it is none that is copied
	}
	if got := launchertest.Say(t, l, launchertest.Shell(t, "grep -c ' "+small+" ' /proc/self/mountinfo; true")); got != "0" {
		t.Errorf("%s is mounted", small)
	}
}
