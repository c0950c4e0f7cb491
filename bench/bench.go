package bench

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// NewCommand is the program bench: a subcommand for each benchmark.
func NewCommand() *cobra.Command {
	root := &cobra.Command{
		Use: "bench", Short: "measure parts of Forerunner on this machine",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newVFSCommand(), newPrefetchCommand(), newSchedulerCommand(), newWorkerCommand(), newSizesCommand(), newQuotasCommand(), newPagesCommand(), newScrubCommand(),
		newChildCommand(), newSchedulerChildCommand())
	return root
}

// options are what all benchmarks can be told.
type options struct {
	runs int      // of each row
	only []string // names of rows; empty is all
	data string   // folder in which a temporary one is made
	out  string   // folder for the JSON
	keep bool     // the temporary folder stays

	profile string // folder for profiles; empty: none. Of the scheduler only.
}

// file names the report of a benchmark. One that does not have all rows is not to be taken for the
// whole.
func (o *options) file(benchmark string, err error) string {
	if len(o.only) > 0 || err != nil {
		return benchmark + "-partial.json"
	}
	return benchmark + ".json"
}

// flags registers those that do not depend on a disk; runs is the default number of
// runs, said what they are.
func (o *options) flags(cmd *cobra.Command, runs int, said string) {
	f := cmd.Flags()
	f.IntVar(&o.runs, "runs", runs, said)
	f.StringSliceVar(&o.only, "only", nil, "comma-separated rows to measure (default all)")
	f.StringVar(&o.out, "out", filepath.Join("build", "bench"), "folder for the JSON")
}

// diskFlags registers those of benchmarks that use a disk.
func (o *options) diskFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.data, "data", "/var/tmp", "folder on the disk to measure; a few GiB below it are used and freed")
	f.BoolVar(&o.keep, "keep", false, "keep the temporary folder below --data")
}

func (o *options) validate(names []string) error {
	if o.runs < 1 {
		return errors.New("--runs must be at least 1")
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--only: there is no row %q; there are %q", name, names)
		}
	}
	return nil
}

// wants reports whether one of the rows is to be measured.
func (o *options) wants(names ...string) bool {
	return len(o.only) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(o.only, n) })
}
