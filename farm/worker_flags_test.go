package farm

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/vfs"
)

// TestFlagsFromEnvironment checks the priority: the command line, then the environment, then the
// default. An error about a bad value must name its variable.
func TestFlagsFromEnvironment(t *testing.T) {
	t.Setenv("FORERUNNER_SLOTS", "3")
	t.Setenv("FORERUNNER_SIZE_CLASS", "8")
	config := func(args ...string) (string, error) {
		w := &Worker{}
		cmd := flags.NewCommand("worker", "", "", w.Settings(), func(*cobra.Command, []string) error { return nil })
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append(args, "--print-config"))
		err := cmd.Execute()
		return out.String(), err
	}
	got, err := config("--size-class=2")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"--slots=3\n", "--size-class=2\n", "--scheduler=grpc://127.0.0.1:8980\n"} {
		if !strings.Contains(got, line) {
			t.Errorf("configuration has no line %q:\n%s", line, got)
		}
	}
	t.Setenv("FORERUNNER_SLOTS", "many")
	if _, err := config(); err == nil || !strings.Contains(err.Error(), "FORERUNNER_SLOTS") {
		t.Errorf("bad value: %v", err)
	}
}

func TestExecFilesystem(t *testing.T) {
	for _, c := range [][2]string{{"", "auto"}, {"auto", "auto"}, {"fuse", "fuse"}, {"hardlink", "hardlink"}, {"FUSE", ""}, {"overlay", ""}} {
		in, want := c[0], c[1]
		var w Worker
		cmd := flags.NewCommand("x", "", "", w.Settings(), func(*cobra.Command, []string) error { return nil })
		var out bytes.Buffer
		cmd.SetOut(&out)
		if in != "" {
			t.Setenv("FORERUNNER_EXEC_FILESYSTEM", in)
		}
		cmd.SetArgs([]string{"--print-config"})
		err := cmd.Execute()
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "auto, fuse and hardlink") {
				t.Errorf("%q: error %v", in, err)
			}
			continue
		}
		if err != nil || !strings.Contains(out.String(), "exec_filesystem: "+want+"\n") || w.ExecFilesystem.String() != want {
			t.Errorf("%q: %v, %s, %s", in, err, w.ExecFilesystem, out.String())
		}
	}
}

// TestReuse wants the flag to be one of two, and nothing to be promised that cannot be kept.
func TestReuse(t *testing.T) {
	for in, want := range map[string]string{"": "off", "off": "off", "profile": "profile", "always": ""} {
		var w Worker
		cmd := flags.NewCommand("x", "", "", w.Settings(), func(*cobra.Command, []string) error { return nil })
		var args []string
		if in != "" {
			args = append(args, "--reuse="+in)
		}
		cmd.SetArgs(args)
		if err := cmd.Execute(); (err == nil) != (want != "") || err == nil && w.Reuse.String() != want {
			t.Errorf("%q: %v, %s", in, err, w.Reuse)
		}
	}
	for _, c := range []struct {
		reuse      Reuse
		have, want vfs.Method // want "" is an error
	}{
		{ReuseOff, vfs.Auto, vfs.Auto},
		{ReuseOff, vfs.HardLink, vfs.HardLink},
		{ReuseProfile, vfs.Auto, vfs.FUSE},
		{ReuseProfile, vfs.FUSE, vfs.FUSE},
		{ReuseProfile, vfs.HardLink, ""},
	} {
		w := Worker{Reuse: c.reuse, ExecFilesystem: c.have}
		if err := w.checkReuse(); (err == nil) != (c.want != "") || err == nil && w.ExecFilesystem != c.want {
			t.Errorf("%s with %s: %v, %s", c.reuse, c.have, err, w.ExecFilesystem)
		}
	}
}

// TestStorageIsTheSchedulers: without --storage a worker uses the storage of its scheduler.
func TestStorageIsTheSchedulers(t *testing.T) {
	for _, c := range []struct{ scheduler, storage, want string }{
		{"", "", "grpc://127.0.0.1:8980"},
		{"grpc://farm:1", "", "grpc://farm:1"},
		{"grpc://a:1,b:2", "", "grpc://a:1,b:2"},
		{"grpc://farm:1", "grpc://storage:2", "grpc://storage:2"},
	} {
		w := Worker{Logger: zap.NewNop()}
		cmd := flags.NewCommand("x", "", "", w.Settings(), func(*cobra.Command, []string) error { return nil })
		var args []string
		if c.scheduler != "" {
			args = append(args, "--scheduler="+c.scheduler)
		}
		if c.storage != "" {
			args = append(args, "--storage="+c.storage)
		}
		cmd.SetArgs(args)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		scheduler, storage, err := w.dial()
		if err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		if err := errors.Join(scheduler.Close(), storage.Close()); err != nil {
			t.Error(err)
		}
		if got := w.storageAddress(); got != c.want {
			t.Errorf("%v: the storage is at %s", c, got)
		}
	}
}
