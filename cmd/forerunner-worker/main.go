// Command forerunner-worker runs actions on one machine: it mounts their input
// roots, runs their commands and stores their outputs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

func main() {
	runner.MainIfLauncher()
	mounts.MainIfGuard()
	if err := flags.Execute(context.Background(), command()); err != nil {
		if !flags.IsLogged(err) {
			fmt.Fprintln(os.Stderr, "forerunner-worker:", err)
		}
		os.Exit(flags.ExitCode(err))
	}
}

// command returns the program's command.
func command() *cobra.Command {
	w := &farm.Worker{Callers: serve.Callers{Memory: serve.BesideCommands()}}
	var logging flags.Logging
	cmd := flags.NewCommand("forerunner-worker", "run actions for a scheduler", "", w.Settings().And(settings.Of(&logging)),
		func(cmd *cobra.Command, _ []string) (err error) {
			if w.Logger, err = logging.NewLogger(); err != nil {
				return err
			}
			w.LogForm = logging.Form()
			drain, abort, release := logging.Signals(cmd.Context())
			defer release()
			stop, err := w.Callers.PaceRuntime(abort, w.Logger)
			if err != nil {
				return err
			}
			defer stop()
			started, err := w.Start(abort)
			if err != nil {
				return err
			}
			return errors.Join(started.Run(drain, abort, nil), started.Close(abort))
		})
	cmd.Example = "forerunner-worker --scheduler grpcs://farm:8980 --platform pool=linux"
	return cmd
}
