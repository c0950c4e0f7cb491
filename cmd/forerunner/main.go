// Command forerunner is a farm on one machine (up), a client that runs one
// command remotely (exec) and a demonstration of both (demo).
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

func main() {
	runner.MainIfLauncher()
	mounts.MainIfGuard()
	err := flags.Execute(context.Background(), command())
	if exit := exitCode(0); errors.As(err, &exit) {
		os.Exit(int(exit))
	}
	if failed := (*exitError)(nil); errors.As(err, &failed) {
		fmt.Fprintln(os.Stderr, "forerunner:", printable.Lines(err.Error()))
		os.Exit(int(failed.code))
	}
	if err != nil {
		if !flags.IsLogged(err) {
			fmt.Fprintln(os.Stderr, "forerunner:", printable.Lines(err.Error()))
		}
		os.Exit(flags.ExitCode(err))
	}
}

// firstUse are the first commands for a new user.
const firstUse = "  forerunner doctor\n" +
	"  forerunner up\n" +
	"  forerunner exec --input src --output hello -- gcc -o hello hello.c\n" +
	"  forerunner history"

// command returns the program's command.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "forerunner",
		Short: "remote execution that runs ahead of the action",
		Long: settings.Flow("Forerunner runs actions of Bazel and other REv2 clients on a farm of machines, and prefetches the inputs that they read.\n" +
			"\"forerunner up\" is a farm on this machine; it prints the lines for .bazelrc, and where its pages are. A farm on several machines\n" +
			"consists of forerunner-scheduler and forerunner-worker. \"forerunner doctor\" checks whether a machine can run a worker.\n" +
			"All commands exit with 0, with 1 if they fail, and with 2 if flags or arguments are wrong; \"forerunner exec\" also with the code of\n" +
			"its command, 124, 126 and 127."),
		Example:       firstUse,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{"run", "Run:", []*cobra.Command{upCommand(), execCommand(), doctorCommand(), demoCommand()}},
		{"look", "See what happens:", []*cobra.Command{
			queueCommand(), operationCommand(), historyCommand(), explainCommand(), profileCommand(), statsCommand(), storageCommand(),
		}},
		{"change", "Operate:", []*cobra.Command{workersCommand(), quotaCommand()}},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	return root
}

// An exitCode ends the program with that code and no message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// An exitError ends the program with a message and that code.
type exitError struct {
	error
	code exitCode
}
