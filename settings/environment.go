package settings

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// FromEnvironment sets settings without a flag from the environment: --cache-size is
// FORERUNNER_CACHE_SIZE.
func FromEnvironment(sets ...*pflag.FlagSet) error {
	var errs []error
	set := func(f *pflag.Flag) {
		if f.Name == "help" || f.Name == "version" || isMoved(f) {
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
	}
	for _, flags := range sets {
		flags.VisitAll(set)
	}
	return errors.Join(errs...)
}

// Print returns the effective settings: a line for each flag, then the tuning section as YAML.
func Print(flags, tuning *pflag.FlagSet) string {
	var lines strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" && f.Name != "print-config" && !isMoved(f) {
			fmt.Fprintf(&lines, "--%s=%s\n", f.Name, f.Value)
		}
	})
	if tuning.HasFlags() {
		lines.WriteString("tuning:\n")
	}
	tuning.VisitAll(func(f *pflag.Flag) {
		fmt.Fprintf(&lines, "  %s: %s\n", (&Field{Name: f.Name}).Key(), written(f.Value))
	})
	return lines.String()
}

// written returns a value, or a list of values, as it is written in YAML.
func written(value pflag.Value) string {
	list, ok := value.(pflag.SliceValue)
	if !ok {
		return quoted(value.String())
	}
	var all []string
	for _, text := range list.GetSlice() {
		if strings.ContainsAny(text, ",[]") {
			text = strconv.Quote(text)
		} else {
			text = quoted(text)
		}
		all = append(all, text)
	}
	return "[" + strings.Join(all, ",") + "]"
}

// quoted returns a value as it is written in YAML.
func quoted(value string) string {
	if value == "" || strings.ContainsAny(value, "#'\"&*!|>%@`{}") || strings.Contains(value, ": ") {
		return fmt.Sprintf("%q", value)
	}
	return value
}
