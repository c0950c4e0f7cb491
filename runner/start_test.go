package runner_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

func TestNotStarted(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cases := []struct {
		name  string
		args  []string
		spoil func(*runner.Command)
		exit  int
		want  string
	}{
		{
			"missing, from PATH",
			[]string{"no-such-tool"},
			nil, 127,
			`exec "no-such-tool": no such file or directory in PATH "/usr/local/bin:/usr/bin:/bin"`,
		},
		{"missing, absolute", []string{"/no/such"}, nil, 127, `exec "/no/such": no such file or directory`},
		{"missing, relative", []string{"./x"}, nil, 127, `exec "./x": no such file or directory`},
		{"below a file", []string{"./plain/x"}, nil, 126, `exec "./plain/x": not a directory`},
		{"a directory", []string{"./dir"}, nil, 126, `exec "./dir": is a directory`},
		{"not executable", []string{"./plain"}, nil, 126, `exec "./plain": not executable (mode -rw-r--r--)`},
		{
			"not executable, from PATH",
			[]string{"plain"},
			func(c *runner.Command) { c.Env = []string{"PATH=" + c.Dir} },
			126, `exec "plain": plain is not executable`,
		},
		{
			"a directory in PATH",
			[]string{"dir"},
			func(c *runner.Command) { c.Env = []string{"PATH="} },
			127, `exec "dir": no such file or directory in PATH "."`,
		},
		{
			"no interpreter",
			[]string{"./script"},
			nil, 127,
			`exec "./script": the file is there but not its interpreter "/no/interpreter"`,
		},
		{
			"no #! line",
			[]string{"./text"},
			nil, 126,
			`exec "./text": neither a program for this machine nor a script with a #! line`,
		},
		{"no arguments", nil, nil, 127, "the command has no arguments"},
		{"empty name", []string{""}, nil, 127, "the command's name is empty"},
		{"NUL", []string{"/bin/echo", "a\x00b"}, nil, 126, "argument 1 contains a NUL byte"},
		{
			"NUL in the environment",
			[]string{"/bin/echo"},
			func(c *runner.Command) { c.Env = []string{"A=\x00"} }, 126,
			"environment variable 0 contains a NUL byte",
		},
		{
			"no working directory",
			[]string{"/bin/true"},
			func(c *runner.Command) { c.Dir += "/sub/gone" }, 127,
			`working directory "sub/gone": no such file or directory`,
		},
		{
			"working directory is a file",
			[]string{"/bin/true"},
			func(c *runner.Command) { c.Dir += "/plain" }, 126,
			`working directory "plain": not a directory`,
		},
		{
			"no working directory, from PATH",
			[]string{"true"},
			func(c *runner.Command) { c.Dir += "/gone" }, 127,
			`working directory "gone": no such file or directory`,
		},
		{
			"path too long",
			[]string{"/bin/true"},
			func(c *runner.Command) { c.Dir += strings.Repeat("/d", 3000) }, 127,
			"file name too long",
		},
		{"argument too long", []string{"/bin/true", strings.Repeat("x", 1<<20)}, nil, 126, "are too many"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := launchertest.Command(t, c.args...)
			cmd.Env = []string{"PATH=" + runner.DefaultPath}
			launchertest.Tree(t, &cmd, map[string]string{"plain": "", "dir/x": ""}, 0o644)
			launchertest.Tree(t, &cmd, map[string]string{"script": "#!/no/interpreter -x\n", "text": "echo\n"}, 0o755)
			if c.spoil != nil {
				c.spoil(&cmd)
			}
			r := launchertest.Run(t, l, cmd)
			if r.Cause != runner.NotStarted || r.ExitCode != c.exit || !strings.Contains(r.Err, c.want) || r.Usage != nil {
				t.Errorf("got %+v, want exit %d, %q", r, c.exit, c.want)
			}
		})
	}
	if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 4")); r.ExitCode != 4 {
		t.Errorf("the next command: %+v", r)
	}
}

func TestWhereCommandsAreFound(t *testing.T) {
	l := launchertest.Plain(t, nil)
	script := func(says string) string { return "#!/bin/sh\necho " + says + "\n" }
	cases := []struct {
		name string
		arg  string
		env  func(dir string) []string
		dir  string
		want string
	}{
		{"relative to the working directory", "./tool", nil, "sub", "sub"},
		{"with a slash inside", "sub/tool", nil, "", "sub"},
		{"up", "../tool", nil, "sub", "top"},
		{"first in PATH", "tool", func(d string) []string { return []string{"PATH=" + d + "/sub:" + d} }, "", "sub"},
		{
			"PATH relative to the working directory", "tool",
			func(string) []string { return []string{"PATH=none:sub:."} }, "", "sub",
		},
		{
			"an empty entry is the working directory", "tool",
			func(string) []string { return []string{"PATH=/bin::sub"} }, "", "top",
		},
		{
			"not executable is skipped", "tool",
			func(string) []string { return []string{"PATH=plain:sub"} }, "", "sub",
		},
		{"no PATH", "echo", func(string) []string { return nil }, "", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := launchertest.Command(t, c.arg)
			launchertest.Tree(t, &cmd, map[string]string{"tool": script("top"), "sub/tool": script("sub")}, 0o755)
			launchertest.Tree(t, &cmd, map[string]string{"plain/tool": script("plain")}, 0o644)
			if c.env != nil {
				cmd.Env = c.env(cmd.Dir)
			}
			cmd.Dir = filepath.Join(cmd.Dir, c.dir)
			r := launchertest.Run(t, l, cmd)
			if r.Err != "" || r.ExitCode != 0 {
				t.Fatalf("got %+v", r)
			}
			if out := launchertest.Read(t, cmd.Stdout); out != c.want+"\n" {
				t.Errorf("said %q, want %q", out, c.want)
			}
		})
	}
}
