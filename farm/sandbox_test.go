package farm

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/forerunner-build/forerunner/farm/ids"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/settings"
)

// Without a sandbox commands of another user must get to their input roots.
func TestUserWithoutASandbox(t *testing.T) {
	data, err := os.MkdirTemp("/var/tmp", "farm-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(data) })
	closed := filepath.Join(data, "closed")
	if err := os.Mkdir(closed, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		mode  os.FileMode // of data
		w     Worker
		fault string
	}{
		{0o700, Worker{}, ""},
		{0o700, Worker{Network: networkOff}, "tuning.network: off"},
		{0o711, Worker{User: "5-6"}, ""},
		{0o700, Worker{User: "5-6"}, "pass through " + data + " to"},
		{0o711, Worker{User: "5-6", Mount: filepath.Join(closed, "new/mount")}, "pass through " + closed + " to"},
	} {
		if err := os.Chmod(data, c.mode); err != nil {
			t.Fatal(err)
		}
		c.w.Data = data
		err := c.w.checkUnboxed()
		if (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("mode %v, %+v: %v", c.mode, c.w, err)
		}
	}
}

// TestFlagsThatNameFiles: commands cannot see a file that a flag of the worker names, also if it is
// below a shown folder, named by a symlink, or does not exist yet.
func TestFlagsThatNameFiles(t *testing.T) {
	shown, err := os.MkdirTemp("/var/lib", "farm-test-")
	if err != nil {
		t.Skip(err) // not root; only root has a sandbox
	}
	t.Cleanup(func() { _ = os.RemoveAll(shown) })
	if err := os.Chmod(shown, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &Worker{Logger: zaptest.NewLogger(t)}
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	tuning := w.Settings().Register(flags)
	w.Sees.Show = []string{shown + "/"}
	var named []string
	name := func(f *pflag.Flag) {
		what, _, _ := settings.Describe(f)
		path := filepath.Join(shown, f.Name, "it")
		value := path
		switch {
		case f.Name == "show":
			return
		case f.Name == "state":
			value = "bolt:" + path
		case what == "FILE":
			target := filepath.Join(shown, "elsewhere", f.Name)
			for _, dir := range []string{path, target} {
				if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(target, []byte("secret"), 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(target, path); err != nil {
				t.Fatal(err)
			}
			named = append(named, target)
		case what == "FOLDER":
			if err := os.MkdirAll(filepath.Join(path, "within"), 0o755); err != nil {
				t.Fatal(err)
			}
		default:
			return
		}
		if err := f.Value.Set(value); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		named = append(named, path)
	}
	flags.VisitAll(name)
	tuning.VisitAll(name)
	if len(named) < 12 {
		t.Fatalf("flags name %v: this tests nothing", named)
	}
	w.State = state.Location("bolt:" + filepath.Join(shown, "records")) // which is listed itself
	named = append(named, w.State.File())
	if err := os.WriteFile(w.State.File(), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	hide, err := w.hidden()
	if err != nil {
		t.Fatal(err)
	}
	l, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{
		Sandbox: &sandbox.Options{Show: w.Sees.Show, Hide: hide}, Logger: zaptest.NewLogger(t),
	})
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	root := t.TempDir()
	for _, path := range named {
		r, err := l.Run(t.Context(), runner.Command{
			Args: []string{"/bin/sh", "-c", "ls " + shown + "/elsewhere >/dev/null || exit 7; if [ -d $1 ]; then [ -n \"$(ls -A $1)\" ]; else [ -s $1 ]; fi", "sh", path},
			Dir:  root, Folders: sandbox.Folders{Root: root, TempDir: root},
		})
		if err != nil || r.ExitCode != 1 {
			t.Errorf("a command finds %s: %+v, %v", path, r, err)
		}
	}
}

// TestWarningOfUsers: the log message about the users of commands matches the users that they have.
func TestWarningOfUsers(t *testing.T) {
	own, none := &ids.Own{}, sandbox.ErrNoUserNamespace
	for _, test := range []struct {
		is   isolation
		want string // empty: nothing is said
	}{
		{isolation{own: own, sandbox: &sandbox.Options{}}, ""},
		{isolation{own: own, sandbox: &sandbox.Options{}, unnamed: none}, "each action runs as its own user, who is not root"},
		{isolation{own: own}, "commands run as root, like this worker"},
		{isolation{own: own, unnamed: none}, "commands run as root, like this worker"},
		{isolation{}, ""},
	} {
		core, said := observer.New(zap.WarnLevel)
		test.is.warnOfUsers(zap.New(core))
		var text string
		for _, e := range said.All() {
			text += e.Message
		}
		if (text == "") != (test.want == "") || !strings.Contains(text, test.want) || said.Len() > 1 {
			t.Errorf("%+v: %q, want %q", test.is, text, test.want)
		}
	}
}
