// Command forerunner-scheduler takes Execute calls, queues them and gives them
// to workers. It can embed the storage that clients and workers use.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/config"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
)

func main() {
	s := &farm.Scheduler{}
	var json bool
	cmd := flags.NewCommand("forerunner-scheduler", "schedule actions onto workers", "",
		func(cmd *cobra.Command, _ []string) (err error) {
			if s.Logger, err = flags.NewLogger(json); err != nil {
				return err
			}
			ctx, abort, release := flags.Signals(cmd.Context())
			defer release()
			var pacing sync.WaitGroup
			defer pacing.Wait()
			ctx, stop := context.WithCancel(ctx)
			defer stop()
			memory, err := s.Callers.Memory.Enforce()
			if err != nil {
				return err
			}
			pacing.Go(func() { serve.PaceGarbage(ctx, memory) })
			return s.Run(ctx, abort, func(address string) error {
				fmt.Fprintf(cmd.OutOrStdout(), "serving on %s%s\n", s.Scheme(), address)
				return nil
			})
		})
	s.Flags(cmd.Flags())
	cmd.AddCommand(checkCommand(), replayCommand())
	cmd.Flags().BoolVar(&json, "log-json", false, "log as JSON")
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "forerunner-scheduler:", err)
		os.Exit(1)
	}
}

// checkCommand returns the verb that looks at a configuration file without starting anything.
func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use: "check CONFIG", Short: "say what is wrong with a configuration file",
		Long: "Reads a file as --config does, and says with file, line and column what is wrong first. The exit\n" +
			"code is 0 if a scheduler would start with it, and 1 if not. deploy/scheduler.example.yaml has all\n" +
			"that there is, and deploy/scheduler.schema.json is for editors.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := config.Check(args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: all is well\n", args[0])
			return err
		},
	}
}
