package flags

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/settings"
)

func TestExitCodes(t *testing.T) {
	failed := errors.New("failed")
	for _, test := range []struct {
		args  []string
		code  int // 0: no error
		wrong string
	}{
		{[]string{"go"}, 0, ""},
		{[]string{"go", "fails"}, exitFailed, "failed"},
		{[]string{"go", "refuses"}, exitUsage, "failed (see program go --help)"},
		{[]string{"go", "--loud"}, exitUsage, "unknown flag: --loud (see program go --help)"},
		{[]string{"go", "too", "many"}, exitUsage, "accepts at most 1 arg(s), received 2 (see program go --help)"},
		{[]string{"got"}, exitUsage, "unknown command \"got\" for \"program\": did you mean go? (see program --help)"},
		{[]string{"stop"}, exitUsage, "unknown command \"stop\" for \"program\" (see program --help)"},
	} {
		child := NewCommand("go", "", "", settings.Of(&struct{}{}), func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case args[0] == "refuses":
				return settings.Wrong("%w", failed)
			}
			return failed
		})
		child.Args = cobra.MaximumNArgs(1)
		program := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true}
		program.AddCommand(child)
		program.SetArgs(test.args)
		err := Execute(t.Context(), program)
		if (err == nil) != (test.code == 0) || err != nil && (ExitCode(err) != test.code || err.Error() != test.wrong) {
			t.Errorf("%q: %v, want %q and exit code %d", test.args, err, test.wrong, test.code)
		}
	}
}

// TestWrongEnvironment: a wrong value is one of usage, wherever it is from.
func TestWrongEnvironment(t *testing.T) {
	t.Setenv("FORERUNNER_WIDTH", "many")
	var of struct {
		Width int `flag:"width" unit:"NUMBER" doc:"Width"`
	}
	program := NewCommand("program", "", "", settings.Of(&of), func(*cobra.Command, []string) error { return nil })
	program.SetArgs(nil)
	want := `FORERUNNER_WIDTH: "many" is not a whole number`
	if err := Execute(t.Context(), program); err == nil || ExitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s and exit code %d", err, want, exitUsage)
	}
}

// TestWrongFile: a file of settings that is missing, or has a wrong value, is an error of usage, too.
func TestWrongFile(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("tuning:\n  width: many\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{"/does/not/exist": "no such file", wrong: "many"} {
		var of struct {
			Config string `flag:"config" unit:"FILE" doc:"File"`
			Width  int    `tuning:"width" unit:"NUMBER" doc:"Width"`
		}
		program := NewCommand("program", "", "", settings.Of(&of), func(*cobra.Command, []string) error { return nil })
		program.SetArgs([]string{"--config", file})
		if err := Execute(t.Context(), program); err == nil || ExitCode(err) != exitUsage || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s and exit code %d", file, err, want, exitUsage)
		}
	}
}

// TestPlainErrors: the error of a value that cannot be parsed names no function of Go, but what is
// allowed. Flags registered by hand are like settings.
func TestPlainErrors(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{"--width=abc", `--width: "abc" is not a whole number; it must be at least 1 and at most 9`},
		{"--width=99999999999999999999", `--width: "99999999999999999999" is too large or too small; it must be at least 1 and at most 9`},
		{"--units=-", `--units: "-" is not a whole number; it must be at least 0`},
		{"--share=half", `--share: "half" is not a number`},
		{"--wait=soon", `--wait: "soon" is not a time such as 30s or 1m30s; it must be more than 0`},
		{"--wait=99999999h", `--wait: "99999999h" is too large or too small; it must be more than 0`},
		{"--sure=maybe", `--sure: "maybe" is not true or false`},
		{"--limit=all", `--limit: "all" is not a whole number`},
		{"--width=10", `--width: "10" is more than 9`},
	} {
		var of struct {
			Width int           `flag:"width" unit:"NUMBER" min:"1" max:"9" default:"1" doc:"Width"`
			Share float64       `flag:"share" unit:"NUMBER" doc:"Share"`
			Wait  time.Duration `flag:"wait" unit:"TIME" above:"0" default:"1s" doc:"Wait"`
			Sure  bool          `flag:"sure" doc:"Sure"`
		}
		child := NewCommand("go", "", "", settings.Of(&of), func(*cobra.Command, []string) error { return nil })
		units := child.Flags().Int64("units", 0, "")
		settings.Bound(child.Flags(), "units", units, settings.Bounds{Min: "0"})
		child.Flags().Int("limit", 0, "")
		program := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true}
		program.AddCommand(child)
		program.SetArgs([]string{"go", test.arg})
		want := test.want + " (see program go --help)"
		if err := Execute(t.Context(), program); err == nil || ExitCode(err) != exitUsage || err.Error() != want {
			t.Errorf("%s: %v, want %s and exit code %d", test.arg, err, want, exitUsage)
		}
	}
}

// TestCompletionHasExamples reads the help of the verbs that print completion scripts.
func TestCompletionHasExamples(t *testing.T) {
	for _, test := range []struct{ shell, want string }{
		{"", "Examples:\nsource <(program completion bash)"},
		{"bash", "Examples:\nsource <(program completion bash)"},
		{"zsh", "Examples:\nsource <(program completion zsh)"},
		{"fish", "Examples:\nprogram completion fish | source"},
		{"powershell", "Examples:\nprogram completion powershell |"},
	} {
		program := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true}
		program.AddCommand(NewCommand("go", "", "", settings.Of(&struct{}{}), func(*cobra.Command, []string) error { return nil }))
		var out strings.Builder
		program.SetOut(&out)
		args := []string{"completion", "--help"}
		if test.shell != "" {
			args = []string{"completion", test.shell, "--help"}
		}
		program.SetArgs(args)
		if err := Execute(t.Context(), program); err != nil || !strings.Contains(out.String(), test.want) {
			t.Errorf("%v: error %v, no %q in\n%s", args, err, test.want, out.String())
		}
	}
}

// TestArguments names the argument that is missing, or one too many.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		use, args, want string
	}{
		{"show NAME", "a", ""},
		{"show [flags] NAME", "", "NAME is missing"},
		{"show NAME", "a b", `"b" is one argument too many`},
		{"put INSTANCE COHORT", "a", "COHORT is missing"},
		{"cancel NAME...", "", "NAME is missing"},
		{"cancel NAME...", "a b c", ""},
		{"list", "a", `"a" is one argument too many`},
	} {
		got := ""
		if err := Arguments(&cobra.Command{Use: c.use}, strings.Fields(c.args)); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s: %q, want %q", c.use, c.args, got, c.want)
		}
	}
}
