package settings

import (
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
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
		if err := setAll(f.Value, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, Plain(f.Value, value, err)))
		}
		f.Changed = true
	}
	for _, flags := range sets {
		flags.VisitAll(set)
	}
	return errors.Join(errs...)
}

// setAll sets a value. The items of a list have commas between them, and those with commas are in
// double quotes; on a command line there is a flag for each.
func setAll(value pflag.Value, text string) error {
	list, ok := value.(pflag.SliceValue)
	if !ok {
		return value.Set(text)
	}
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a list with commas between its items: %w", text, err)
	case len(lines) > 1:
		return fmt.Errorf("%q has several lines", text)
	}
	return list.Replace(slices.Concat(lines...))
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
		all = append(all, quoted(text))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// quoted returns a value as it is written in YAML, in a list and elsewhere: in quotes unless it can
// be read without.
func quoted(value string) string {
	var list yaml.Node
	if yaml.Unmarshal([]byte("["+value+"]"), &list) == nil && len(list.Content) == 1 && len(list.Content[0].Content) == 1 {
		if item := list.Content[0].Content[0]; item.Kind == yaml.ScalarNode && item.Style == 0 && item.Tag != "!!null" && item.Value == value {
			return value
		}
	}
	return strconv.Quote(value)
}
