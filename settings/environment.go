package settings

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// FromEnvironment sets the flags that were not given from the environment: --cache-size is FORERUNNER_CACHE_SIZE.
func FromEnvironment(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" {
			return
		}
		name := (&Field{Name: f.Name}).Variable()
		value, ok := os.LookupEnv(name)
		if !ok || f.Changed {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
		f.Changed = true
	})
	return errors.Join(errs...)
}

// Print returns what is in force: a line for each flag, then the tuning section as YAML.
func Print(flags *pflag.FlagSet) string {
	var lines, tuning strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		_, tunes := f.Annotations[isTuning]
		switch value := f.Value.String(); {
		case f.Name == "help" || f.Name == "version" || f.Name == "print-config":
		case !tunes:
			fmt.Fprintf(&lines, "--%s=%s\n", f.Name, value)
		default:
			fmt.Fprintf(&tuning, "  %s: %s\n", (&Field{Name: f.Name}).Key(), quoted(value))
		}
	})
	if tuning.Len() > 0 {
		lines.WriteString("tuning:\n")
	}
	return lines.String() + tuning.String()
}

// quoted returns a value as it is written in YAML.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, "#'\"&*!|>%@`{}") || strings.Contains(value, ": ") {
		return fmt.Sprintf("%q", value)
	}
	return value
}
