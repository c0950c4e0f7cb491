package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A machine is a container that has booted from the root of this machine. Its changes are in a
// folder.
type machine struct {
	*testing.T
	folder string
	said   string // file with the output of the boot and of the action
	init   string // pid of its systemd
}

// patience is the timeout of every wait for a machine.
const patience = 3 * time.Minute

// boot boots a machine, or ends the test where that cannot be.
func boot(t *testing.T) *machine {
	t.Helper()
	needs := func(what string) {
		if os.Getenv("CI") != "" {
			t.Fatal(what)
		}
		t.Skip(what)
	}
	if os.Getuid() != 0 {
		needs("to boot a machine needs root")
	}
	for _, program := range []string{"dpkg", "unshare", "nsenter", "ip", "/lib/systemd/systemd"} {
		if _, err := exec.LookPath(program); err != nil {
			needs(err.Error())
		}
	}
	m := &machine{T: t, folder: t.TempDir(), said: filepath.Join(t.TempDir(), "said")}
	sweepGroups(t)
	groups := m.groups()
	t.Cleanup(func() { removeGroups(t, groups) })
	// Its groups are below ones of its own, which it takes for the roots.
	script := `for group in "$@"; do echo $$ > "$group/cgroup.procs"; done
exec unshare --mount --pid --fork --uts --ipc --net --cgroup --kill-child sh testdata/boot.sh "` + m.folder + `"`
	cmd := exec.Command("sh", append([]string{"-ec", script, "sh"}, groups...)...)
	said, err := os.Create(m.said)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	// It ends with this process, however that ends: with the thread that starts it, in truth.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	m.eventually("it runs", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		m.init = strings.TrimSpace(string(children))
		return m.init != "" && m.try("systemctl", "is-active", "basic.target") == nil
	})
	return m
}

// command is a command of the machine.
func (m *machine) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", m.init, "-a", "--root=/proc/" + m.init + "/root", "--wd=/"}, args...)...)
}

func (m *machine) try(args ...string) error { return m.command(args...).Run() }

// run runs a command that has to succeed, and returns what it prints.
func (m *machine) run(args ...string) string {
	m.Helper()
	var stderr bytes.Buffer
	cmd := m.command(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		journal, _ := m.command("journalctl", "--no-pager", "-n", "60").CombinedOutput()
		m.Fatalf("%q: %v\n%s%s\n%s", args, err, out, stderr.String(), journal)
	}
	return strings.TrimSpace(string(out))
}

// write makes a file of the machine.
func (m *machine) write(path string, content []byte) {
	m.Helper()
	cmd := m.command("tee", path)
	cmd.Stdin, cmd.Stdout = bytes.NewReader(content), nil
	if err := cmd.Run(); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) eventually(what string, holds func() bool) {
	m.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			said, _ := os.ReadFile(m.said)
			journal, _ := m.command("journalctl", "--no-pager", "-n", "60").CombinedOutput()
			m.Fatalf("not in %s: %s\n%s%s", patience, what, said, journal)
		}
	}
}

// left returns the files and folders of ours that there are, below places which packages write to.
func (m *machine) left() (list []string) {
	m.Helper()
	for path := range strings.FieldsSeq(m.run("find", "/etc", "/usr", "/opt", "/var", "-xdev", "-iname", "*forerunner*", "-not", "-path", "/var/tmp/*")) {
		if !strings.HasPrefix(path, "/var/lib/forerunner-") || strings.Count(path, "/") == 3 {
			list = append(list, path)
		}
	}
	slices.Sort(list)
	return list
}

// released makes the package of a version, with programs that were built for it.
func released(t *testing.T, version string) []byte {
	t.Helper()
	t.Setenv("GOFLAGS", "-buildvcs=false") // independent of the caller's environment
	r, stage := staged(t)
	r.version = version
	err := errors.Join(os.RemoveAll(filepath.Join(stage, runtime.GOARCH)), r.programs(stage, runtime.GOARCH))
	if err == nil {
		err = r.pack(stage, runtime.GOARCH, "deb")
	}
	if err != nil {
		t.Fatal(err)
	}
	return made(t, r, ".deb")
}

const services = "forerunner-scheduler forerunner-worker"

// TestInstalled installs the package on a machine with systemd, starts it, upgrades it while an
// action runs, removes and purges it: the action ends as if nothing had been, settings stay, and in
// the end there is nothing.
func TestInstalled(t *testing.T) {
	m := boot(t)
	before := m.left()
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		t.Fatal(err)
	}
	m.write("/run/old.deb", released(t, "1.2.3"))
	m.write("/run/new.deb", released(t, "1.2.4"))
	units := strings.Fields(services)

	m.run("dpkg", "-i", "/run/old.deb")
	for _, unit := range units {
		if m.try("systemctl", "is-active", unit) == nil || m.try("systemctl", "is-enabled", unit) == nil {
			t.Errorf("%s runs, though nobody has asked for it", unit)
		}
	}
	if got, want := m.run("forerunner", "--version"), "forerunner 1.2.3, commit "+strings.TrimSpace(string(commit)); !strings.HasPrefix(got, want) {
		t.Errorf("it is %q, want %q", got, want)
	}
	m.run(append([]string{"systemctl", "enable", "--now"}, units...)...)
	m.run("sh", "-c", "echo FORERUNNER_SLOTS=1 >> /etc/forerunner/worker.env")

	m.expectUpgrade()

	m.run("dpkg", "-r", "forerunner")
	if n := m.run("sh", "-c", "pgrep -c forerunner || true"); n != "0" {
		t.Errorf("%s programs run when the package is removed", n)
	}
	if mounts := m.run("sh", "-c", "grep -c forerunner /proc/self/mounts || true"); mounts != "0" {
		t.Errorf("%s mounts are left", mounts)
	}
	m.run("test", "-d", "/var/lib/forerunner-scheduler/storage")
	expectLeft(m, before, "/etc/forerunner", "/var/lib/forerunner-scheduler", "/var/lib/forerunner-worker")
	m.run("dpkg", "-P", "forerunner")
	expectLeft(m, before)
}

// expectUpgrade upgrades while an action runs. The scheduler is the new one at once, the worker
// when the action has ended.
func (m *machine) expectUpgrade() {
	m.Helper()
	answers := func() bool { return m.try("forerunner", "workers", "list") == nil } // its unit has started before that
	m.eventually("the scheduler answers", answers)
	m.write("/opt/gate", nil) // commands see /opt, including later changes
	action := m.command("forerunner", "exec", "--remote", "grpc://127.0.0.1:8980", "--live", "on", "--output", "said", "--",
		"sh", "-c", "echo begun; while [ -e /opt/gate ]; do sleep 0.1; done; echo ended | tee said")
	wrong, err := os.OpenFile(m.said, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		m.Fatal(err)
	}
	defer wrong.Close()
	printed := filepath.Join(m.TempDir(), "printed")
	out, err := os.Create(printed)
	if err != nil {
		m.Fatal(err)
	}
	defer out.Close()
	action.Stdout, action.Stderr = out, wrong
	if err := action.Start(); err != nil {
		m.Fatal(err)
	}
	m.eventually("the action runs", func() bool {
		text, _ := os.ReadFile(printed)
		return strings.Contains(string(text), "begun")
	})

	was := m.run("systemctl", "show", "-P", "MainPID", "forerunner-scheduler")
	worker := m.run("systemctl", "show", "-P", "MainPID", "forerunner-worker")
	m.run("dpkg", "-i", "/run/new.deb")
	m.eventually("the scheduler is the new one", func() bool {
		now := m.run("systemctl", "show", "-P", "MainPID", "forerunner-scheduler")
		return now != "0" && now != was && m.try("systemctl", "is-active", "forerunner-scheduler") == nil
	})
	if now := m.run("systemctl", "show", "-P", "MainPID", "forerunner-worker"); now != worker {
		m.Error("the worker is another one, though an action runs")
	}
	m.run("rm", "/opt/gate")
	if err := action.Wait(); err != nil {
		said, _ := os.ReadFile(m.said)
		m.Errorf("the action ends with %v\n%s", err, said)
	}
	if text, _ := os.ReadFile(printed); !strings.HasSuffix(string(text), "ended\n") || strings.Count(string(text), "begun") != 1 {
		m.Errorf("the action printed %q", text)
	}
	m.eventually("the worker is the new one", func() bool {
		now := m.run("systemctl", "show", "-P", "MainPID", "forerunner-worker")
		return now != "0" && now != worker && m.try("systemctl", "is-active", "forerunner-worker") == nil
	})
	m.eventually("the new scheduler answers", answers)
	if got := m.run("forerunner", "exec", "--remote", "grpc://127.0.0.1:8980", "--", "sh", "-c", "echo again"); !strings.Contains(got, "again") {
		m.Errorf("after the upgrade an action prints %q", got)
	}
	if got := m.run("tail", "-n1", "/etc/forerunner/worker.env"); got != "FORERUNNER_SLOTS=1" {
		m.Errorf("the settings are %q after the upgrade", got)
	}
}

// expectLeft checks that only the files in before, and those in may, are left.
func expectLeft(m *machine, before []string, may ...string) {
	m.Helper()
	for _, path := range m.left() {
		if !slices.Contains(before, path) && !slices.Contains(may, path) && (len(may) == 0 || !strings.HasPrefix(path, "/var/lib/dpkg/info/forerunner.")) {
			m.Errorf("%s is left", path)
		}
	}
}
