package sizes

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/forerunner-build/forerunner/bench/sizes/recorder"
)

// newRecordCommand returns the subcommand that measures commands for the recorded streams.
func newRecordCommand() *cobra.Command {
	var o recorder.Options
	cmd := &cobra.Command{
		Use: "record", Short: "measure real commands on machines of several sizes, for the recorded streams (needs root; more than an hour)",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return recorder.Record(cmd.Context(), o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Out, "out", filepath.Join("bench", "sizes", "recording", "recorded.csv"), "CSV `file` of the recording; commands in it that are not measured again stay")
	f.StringVar(&o.Data, "data", "/var/tmp", "parent `folder` of the temporary files")
	f.StringVar(&o.Module, "module", ".", "`folder` of this repository, whose packages are compiled")
	f.StringSliceVar(&o.Only, "only", nil, "comma-separated kinds and targets of commands to measure (default all)")
	f.BoolVar(&o.Warm, "warm", true, "run each command once before, so that its files are in the page cache")
	f.IntVar(&o.Rounds, "rounds", 3, "runs of each command on each machine, with slightly different sources")
	f.Float64Var(&o.Busy, "busy", 1.5, "number of CPUs of this machine that commands may use")
	f.Float64Var(&o.Speed, "speed", 0.125, "share of a CPU of this machine that a CPU of the recorded machines has")
	f.IntVar(&o.MemoryMiB, "memory", 256, "MiB of memory for each CPU of a recorded machine")
	return cmd
}
