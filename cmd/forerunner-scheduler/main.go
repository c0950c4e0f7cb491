// Command forerunner-scheduler takes Execute calls, queues them and gives them
// to workers. It can embed the storage that clients and workers use.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/settings"
)

func main() {
	if err := flags.Execute(context.Background(), command()); err != nil {
		if !flags.IsLogged(err) {
			fmt.Fprintln(os.Stderr, "forerunner-scheduler:", err)
		}
		os.Exit(flags.ExitCode(err))
	}
}

// command returns the program's command.
func command() *cobra.Command {
	s := &farm.Scheduler{}
	var logging flags.Logging
	cmd := flags.NewCommand("forerunner-scheduler", "schedule actions onto workers", "", s.Settings().And(settings.Of(&logging)),
		func(cmd *cobra.Command, _ []string) (err error) {
			if s.Logger, err = logging.NewLogger(); err != nil {
				return err
			}
			ctx, abort, release := logging.Signals(cmd.Context())
			defer release()
			stop, err := s.Callers.PaceRuntime(ctx, s.Logger)
			if err != nil {
				return err
			}
			defer stop()
			return s.Run(ctx, abort, func(address string) error {
				fmt.Fprintf(cmd.OutOrStdout(), "serving on %s%s\n", s.Scheme(), address)
				return nil
			})
		})
	cmd.Example = "forerunner-scheduler --data /srv/forerunner --cache-size 500G\n" +
		"forerunner-scheduler --listen 10.0.0.1:8980 --tls-cert tls.crt --tls-key tls.key"
	cmd.AddCommand(checkCommand(), replayCommand())
	return cmd
}

// checkCommand returns the verb that looks at a configuration file without starting anything.
func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check CONFIG", Short: "check a configuration file",
		Long: settings.Flow("Reads a configuration file as --config does, and reports the first error with file, line and column. The exit code is\n" +
			"0 if a scheduler would start with the file, and 1 if not. deploy/forerunner.example.yaml shows all settings;\n" +
			"deploy/forerunner.schema.json is a schema for editors."),
		Example: "forerunner-scheduler check /etc/forerunner/scheduler.yaml",
		Args:    flags.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := farm.CheckFile(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: all is well\n", args[0])
			return err
		},
	}
}
