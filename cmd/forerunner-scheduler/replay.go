package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/journal"
	"github.com/forerunner-build/forerunner/settings"
)

// replayCommand returns the verb that replays a recording.
func replayCommand() *cobra.Command {
	check := false
	cmd := &cobra.Command{
		Use: "replay FILE", Short: "replay a recording and print the scheduler's state at its end",
		Long: settings.Flow("Replays a file that --record has written, and prints the workers, operations, queues and quotas at the end of the\n" +
			"recording. The exit code is 1 if this scheduler decides differently from the one that made the recording, as another\n" +
			"version may."),
		Example: "forerunner-scheduler replay /var/lib/forerunner/events.journal",
		Args:    flags.Arguments,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			see := whole
			if !check {
				see = nil
			}
			return replay(file, see, cmd.OutOrStdout())
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "check the state after each event, and report the first event that breaks it (slow)")
	return cmd
}

// whole returns what is wrong with a State after an event.
func whole(_ int, s *core.State) error {
	if problem := s.Check(); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// replay prints the state at the end of a recording.
func replay(recording io.Reader, see func(int, *core.State) error, w io.Writer) error {
	r, err := journal.Replay(recording, see)
	if err != nil {
		return err
	}
	end := "the recording breaks off"
	switch {
	case r.Recorded == r.Dump:
		end = "as recorded"
	case r.Recorded != "":
		end = "not as recorded"
	}
	if _, err := fmt.Fprintf(w, "%d events, %s\n%s", r.Events, end, r.Dump); err != nil {
		return err
	}
	if r.Recorded != "" && r.Recorded != r.Dump {
		return errors.New("this scheduler decides differently from the one that made the recording")
	}
	return nil
}
