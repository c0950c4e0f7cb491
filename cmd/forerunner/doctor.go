package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/settings"
)

// doctorFlags are settings of doctor that a worker does not have.
type doctorFlags struct {
	JSON bool `flag:"json" group:"General" doc:"Prints JSON"`
}

func doctorCommand() *cobra.Command {
	w := &farm.Worker{Callers: serve.Callers{Memory: serve.BesideCommands()}}
	var own doctorFlags
	cmd := flags.NewCommand("doctor", "check whether this machine can run a worker",
		"Checks all that a worker needs: kernel, clock, cgroups, a sandbox, input roots, disk, ports, certificates and, if you name\n"+
			"them, scheduler and storage with its speed. It starts like forerunner-worker with the same flags, in a temporary folder\n"+
			"below --data. For each missing part it prints the cost and the remedy. The exit code is 0 if a worker would work here,\n"+
			"even with limits, and 1 if not.",
		w.Settings().And(settings.Of(&own)), func(cmd *cobra.Command, _ []string) error {
			isNamed := cmd.Flags().Changed("scheduler")
			found := w.Examine(cmd.Context(), isNamed, isNamed || cmd.Flags().Changed("storage"))
			if own.JSON {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				if err := encoder.Encode(found); err != nil {
					return err
				}
			} else {
				printFindings(cmd.OutOrStdout(), found)
			}
			for _, f := range found {
				if f.State == farm.FindingBroken {
					return exitCode(1)
				}
			}
			return nil
		})
	cmd.Example = "forerunner doctor\nforerunner doctor --data /srv/forerunner --scheduler grpc://farm:8980"
	return cmd
}

// printFindings prints them for people.
func printFindings(out io.Writer, found []farm.Finding) {
	count := map[farm.FindingState]int{}
	for _, f := range found {
		count[f.State]++
		fmt.Fprintf(out, "%-8s %s", f.State, f.What)
		if f.State == farm.FindingLimited {
			fmt.Fprintln(out)
			for _, line := range [][2]string{{"missing", f.Why}, {"costs", f.Costs}, {"remedy", f.Remedy}} {
				if line[1] != "" {
					fmt.Fprintf(out, "           %s: %s\n", line[0], strings.ReplaceAll(line[1], "\n", "\n             "))
				}
			}
			continue
		}
		if f.Why != "" {
			fmt.Fprintf(out, ": %s", f.Why)
		}
		fmt.Fprintln(out)
		if f.Remedy != "" {
			fmt.Fprintf(out, "           remedy: %s\n", f.Remedy)
		}
	}
	switch {
	case count[farm.FindingBroken] > 0:
		fmt.Fprintln(out, "A worker does not work here.")
	case count[farm.FindingLimited] > 0:
		fmt.Fprintln(out, "A worker works here, with the limits above.")
	default:
		fmt.Fprintln(out, "A worker works here.")
	}
}
