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
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

func main() {
	runner.MainIfLauncher()
	mounts.MainIfGuard()
	err := flags.Execute(context.Background(), command())
	if exit := exitCode(0); errors.As(err, &exit) {
		os.Exit(int(exit))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "forerunner:", printable(err.Error()))
		os.Exit(flags.ExitCode(err))
	}
}

// command returns the program's command.
func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "forerunner",
		Short:         "remote execution that runs ahead of the action",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(upCommand(), execCommand(), profileCommand(), workersCommand(), queueCommand(), operationCommand(), historyCommand(), explainCommand(), quotaCommand(), statsCommand(), storageCommand(),
		demoCommand(), doctorCommand())
	return root
}

// An exitCode ends the program with that code and no message.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }
