package flags

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/forerunner-build/forerunner/settings"
)

// NewCommand returns a command with the common parts of all programs: flags from the environment
// and the --config file, help by groups, errors on one line, --print-config.
func NewCommand(use, short, long string, set *settings.Set, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: settings.Flow(long),
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
	}
	tuning := set.Register(cmd.Flags())
	printConfig := cmd.Flags().Bool("print-config", false, "Prints the settings in force, as flags and tuning section, and exits")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := load(cmd, set, tuning); err != nil {
			return err
		}
		if *printConfig {
			fmt.Fprint(cmd.OutOrStdout(), settings.Print(cmd.Flags(), tuning))
			return nil
		}
		return run(cmd, args)
	}
	cmd.SetUsageFunc(usage)
	completeWords(cmd)
	return cmd
}

// Load sets the flags of a command from the environment, unless the command line has set them. It
// is for code that runs before the command itself, such as completion.
func Load(cmd *cobra.Command) error { return settings.FromEnvironment(cmd.Flags()) }

// completeWords registers completion for flags with a fixed set of values.
func completeWords(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if words := settings.Words(f); words != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // known to be there
		}
	})
}

// load sets values without a flag from the environment and, for tuning settings, from the file of
// --config.
func load(cmd *cobra.Command, set *settings.Set, tuning *pflag.FlagSet) error {
	if err := settings.FromEnvironment(cmd.Flags(), tuning); err != nil {
		return settings.Wrong("%w", err)
	}
	file := cmd.Flags().Lookup("config")
	if file == nil || file.Value.String() == "" {
		return nil
	}
	section, err := settings.Raw{}, checkRepeatable(file.Value.String())
	if err == nil {
		section, err = settings.Tuning(file.Value.String())
	}
	if err == nil {
		err = set.Tune(tuning, section)
	}
	if err != nil {
		return settings.Wrong("--config: %w", err)
	}
	return nil
}

// checkRepeatable returns an error for a file that can be read only once: programs read theirs
// several times, and would find it empty.
func checkRepeatable(file string) error {
	info, err := os.Stat(file)
	if err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) != 0 {
		return fmt.Errorf("%s is a pipe, and this program reads the file several times: give a file", file)
	}
	return nil // a missing file is for its reader to report
}

// usage prints how a command is called, and its flags by groups.
func usage(cmd *cobra.Command) error {
	out := cmd.OutOrStderr()
	fmt.Fprintf(out, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\nAvailable Commands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(out, "  %-*s %s\n", cmd.NamePadding(), c.Name(), c.Short)
			}
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(out, "\nExample:\n  %s\n", strings.ReplaceAll(cmd.Example, "\n", "\n  "))
	}
	fmt.Fprint(out, settings.Help(cmd.Flags()))
	if cmd.Flags().Lookup("config") != nil {
		fmt.Fprintf(out, "\n%s\n", settings.Flow("More settings are in the tuning section of the --config file: docs/reference/configuration.md. "+
			"Each can be an environment variable, as each flag can: --cache-size is FORERUNNER_CACHE_SIZE. There, lists have commas between their items. "+
			"SIZE is a number of bytes such as 500M or 20GiB, TIME is such as 30s, 1m30s or 24h."))
	}
	return nil
}

// DefaultData returns the default data folder of a program.
func DefaultData(name string) string {
	if os.Getuid() == 0 {
		return filepath.Join("/var/lib", name)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, name)
}
