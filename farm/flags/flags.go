package flags

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
)

// envPrefix begins the environment variable of every flag: --cache-size is
// FORERUNNER_CACHE_SIZE.
const envPrefix = "FORERUNNER_"

// FromEnv sets the flags that were not given from the environment.
func FromEnv(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

// NewCommand returns a command with what all programs share: flags from the
// environment, errors on one line, --print-config.
func NewCommand(use, short, long string, run func(cmd *cobra.Command, args []string) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long,
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
	}
	printConfig := cmd.Flags().Bool("print-config", false, "print what is in force, one flag a line, and exit")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := FromEnv(cmd.Flags()); err != nil {
			return err
		}
		if *printConfig {
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Name != "help" && f.Name != "print-config" {
					fmt.Fprintf(cmd.OutOrStdout(), "--%s=%s\n", f.Name, f.Value)
				}
			})
			return nil
		}
		return run(cmd, args)
	}
	return cmd
}

// NewLogger returns a logger for people at a terminal or, with json, for
// machines. It writes to standard error.
func NewLogger(json bool) (*zap.Logger, error) {
	if json {
		config := zap.NewProductionConfig()
		config.Sampling = nil // there is a line for each action, however many there are in a second
		return config.Build()
	}
	config := zap.NewDevelopmentConfig()
	config.Level = zap.NewAtomicLevelAt(zap.InfoLevel)
	config.DisableStacktrace, config.DisableCaller = true, true
	return config.Build()
}

// ParseSize reads a number of bytes with an optional unit: 500M, 20GiB.
func ParseSize(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	number := strings.TrimRight(s, "kKMGTiB")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s[len(number):]), "B"), "I")
	shift, ok := map[string]int{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !ok || n < 0 || n > (1<<62)>>shift {
		return 0, fmt.Errorf("size %q is not a number of bytes such as 500M or 20G", s)
	}
	return n << shift, nil
}

// DefaultData is where a program keeps its data unless told otherwise.
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
