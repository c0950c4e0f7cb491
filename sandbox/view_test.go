package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestViewIsAList: of the machine's top folders and /etc, a command sees only the listed ones.
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

// TestMountOptions: nothing that a command sees has programs with privileges or, outside of /dev,
// devices.
func TestMountOptions(t *testing.T) {
	for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs} {
		cmd := launchertest.Command(t, "cat", "/proc/self/mountinfo")
		cmd.User = user
		launchertest.OpenParents(t, cmd.Dir)
		seen := map[string]bool{}
		for line := range strings.Lines(launchertest.Say(t, launchertest.Sandboxed(t, nil), cmd)) {
			fields := strings.Fields(line)
			at, options := fields[4], strings.Split(fields[5], ",")
			seen[at] = true
			devices := at == "/dev" || at == "/dev/pts"
			if !slices.Contains(options, "nosuid") || slices.Contains(options, "nodev") == devices {
				t.Errorf("%s: %s is mounted with %q", name, at, options)
			}
		}
		for _, at := range []string{"/", sandbox.Root, "/tmp", "/var/tmp", "/dev", "/dev/pts", "/dev/shm", "/proc"} {
			if !seen[at] {
				t.Errorf("%s: nothing is mounted on %s", name, at)
			}
		}
	}
}

// TestNothingIsMountedBelowWhatIsHidden: a process that mounted there could unmount and expose it.
func TestNothingIsMountedBelowWhatIsHidden(t *testing.T) {
	hidden, err := os.MkdirTemp("/usr/local", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(hidden) })
	below := filepath.Join(hidden, "below")
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("sandbox-test", below, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(below, 0) })
	for hide, want := range map[string]string{hidden: "0", "/usr/local/share": "1"} {
		l := launchertest.Sandboxed(t, nil, hide)
		if got := launchertest.Say(t, l, launchertest.Shell(t, "grep -c "+below+" /proc/self/mountinfo || :")); got != want {
			t.Errorf("hiding %s: mounted %s times, want %s", hide, got, want)
		}
	}
}

// TestEtcIsAsOnTheMachine: copied and mounted files have the contents, modes and owners of the
// machine's files, and are read-only. Copied files need no mount.
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
