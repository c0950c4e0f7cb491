package flags

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/settings"
)

// Exit codes of programs.
const (
	exitFailed = 1
	exitUsage  = 2
)

// jsonFlag is the name of the flag of Logging.JSON.
const jsonFlag = "log-json"

// A UsageError means that a command was called with wrong flags or arguments, and did nothing:
// Execute makes it of a settings.WrongError.
type UsageError struct {
	// Err is the error.
	Err error
	// Command is the path of the command, such as "forerunner workers drain"; empty if it is
	// unknown.
	Command string
}

func (e *UsageError) Error() string {
	if e.Command == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%v (see %s --help)", e.Err, e.Command)
}

func (e *UsageError) Unwrap() error { return e.Err }

// Execute runs a program's command. An error that occurs before the command itself runs is a
// UsageError: unknown flags and commands, values that cannot be parsed, too many or too few
// arguments. The program has the flag --version. With --log-json the error is a line like those of
// the log, which IsLogged reports.
func Execute(ctx context.Context, root *cobra.Command) error {
	// A file that would be larger than the limit of this process is an error of the write, which says
	// so, and not the end of the process. Programs that it starts have the signal as it was.
	signal.Notify(make(chan os.Signal, 1), unix.SIGXFSZ)
	addCompletion(root)
	addVersion(root)
	root.SetFlagErrorFunc(plainly)
	started := false
	note(root, &started)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return nil
	}
	if wrong := (*settings.WrongError)(nil); errors.As(err, &wrong) {
		err = &UsageError{err, cmd.CommandPath()}
	} else if !started {
		err = &UsageError{onOneLine(err), cmd.CommandPath()}
	}
	if wantsJSON(cmd) {
		logline.JSON.Print(os.Stderr, "error", "program ends", err)
		err = &loggedError{err}
	}
	return err
}

// plainly puts the error of a flag that cannot be parsed in words of people.
func plainly(_ *cobra.Command, err error) error {
	invalid := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	return fmt.Errorf("--%s: %w", flag.Name, settings.Plain(flag.Value, invalid.GetValue(), invalid.Unwrap()))
}

// onOneLine puts suggestions of cobra on the line of an error.
func onOneLine(err error) error {
	what, names, found := strings.Cut(err.Error(), "\n\nDid you mean this?\n")
	if !found {
		return err
	}
	return fmt.Errorf("%s: did you mean %s?", what, strings.Join(strings.Fields(names), " or "))
}

// wantsJSON reports whether a command was called with --log-json, which its flags may not say: the
// error can be in a flag before it.
func wantsJSON(cmd *cobra.Command) bool {
	flag := cmd.Flags().Lookup(jsonFlag)
	if flag == nil {
		return false
	}
	_ = Load(cmd) // the error is about another flag
	return flag.Value.String() == "true" || !flag.Changed && slices.Contains(os.Args, "--"+jsonFlag)
}

// A loggedError is in the log.
type loggedError struct{ error }

func (e *loggedError) Unwrap() error { return e.error }

// IsLogged reports whether an error is in the log, so that it need not be printed.
func IsLogged(err error) bool {
	logged := (*loggedError)(nil)
	return errors.As(err, &logged)
}

// Arguments is a cobra.PositionalArgs: a command has an argument for each name in its use, and for
// the last one more if it ends in "...".
func Arguments(cmd *cobra.Command, args []string) error {
	names := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(name string) bool { return name == "[flags]" })
	if len(args) < len(names) {
		return fmt.Errorf("%s is missing", strings.TrimSuffix(names[len(args)], "..."))
	}
	if len(args) > len(names) && (len(names) == 0 || !strings.HasSuffix(names[len(names)-1], "...")) {
		return fmt.Errorf("%q is one argument too many", args[len(names)])
	}
	return nil
}

// addCompletion adds the command that prints scripts for shells, with examples, to a program with
// subcommands.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() != "completion" {
			continue
		}
		c.Example = fmt.Sprintf("source <(%[1]s completion bash)\n%[1]s completion fish | source", root.Name())
		for _, shell := range c.Commands() {
			shell.Example = map[string]string{
				"bash":       fmt.Sprintf("source <(%s completion bash)", root.Name()),
				"fish":       fmt.Sprintf("%s completion fish | source", root.Name()),
				"powershell": fmt.Sprintf("%s completion powershell | Out-String | Invoke-Expression", root.Name()),
				"zsh":        fmt.Sprintf("source <(%s completion zsh)", root.Name()),
			}[shell.Name()]
		}
	}
}

// note sets started when a command or one below it runs.
func note(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		note(c, started)
	}
}

// ExitCode returns a program's exit code for an error: 2 for a UsageError, otherwise 1.
func ExitCode(err error) int {
	if errors.As(err, new(*UsageError)) || errors.As(err, new(*settings.WrongError)) {
		return exitUsage
	}
	return exitFailed
}
