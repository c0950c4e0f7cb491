package report

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
)

// Options are the options of all benchmarks.
type Options struct {
	Runs int      // of each row
	Only []string // names of rows; empty: all
	Data string   // parent of the temporary folder
	Out  string   // folder for the JSON report
	Keep bool     // keep the temporary folder

	Profile string // folder for profiles of the scheduler; empty: none
}

// File returns the file name of a benchmark's report. A report without all rows has a different
// name, so that it does not replace a complete one.
func (o *Options) File(benchmark string, err error) string {
	if len(o.Only) > 0 || err != nil {
		return benchmark + "-partial.json"
	}
	return benchmark + ".json"
}

// Flags registers the flags that do not depend on a disk. runs is the default number of runs; said
// describes the runs.
func (o *Options) Flags(cmd *cobra.Command, runs int, said string) {
	f := cmd.Flags()
	f.IntVar(&o.Runs, "runs", runs, said)
	f.StringSliceVar(&o.Only, "only", nil, "comma-separated rows to measure (default all)")
	f.StringVar(&o.Out, "out", filepath.Join("build", "bench"), "`folder` for the JSON report")
}

// DiskFlags registers the flags of benchmarks that use a disk.
func (o *Options) DiskFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Data, "data", "/var/tmp", "`folder` on the disk to measure; the benchmark uses a few GiB there and frees them")
	f.BoolVar(&o.Keep, "keep", false, "keep the temporary folder below --data")
}

// Validate returns an error for invalid options, and for rows that are not in names.
func (o *Options) Validate(names []string) error {
	if o.Runs < 1 {
		return errors.New("--runs must be at least 1")
	}
	for _, name := range o.Only {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--only: there is no row %q; there are %q", name, names)
		}
	}
	return nil
}

// Wants reports whether one of the rows is requested.
func (o *Options) Wants(names ...string) bool {
	return len(o.Only) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(o.Only, n) })
}

// Progress prints a line of progress to standard error.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// WorkFolder creates a folder below parent. leave removes it or, if keep is set, prints its path.
func WorkFolder(parent string, keep bool) (dir string, leave func() error, err error) {
	dir, err = os.MkdirTemp(parent, "forerunner-bench-")
	if err != nil {
		return "", nil, err
	}
	leave = func() error {
		if keep {
			Progress("kept %s", dir)
			return nil
		}
		return os.RemoveAll(dir)
	}
	return dir, leave, nil
}
