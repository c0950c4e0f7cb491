package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Raw is an undecoded value of a file, for Tune.
type Raw struct{ node }

// Tune sets values from the tuning section of a file, unless the environment has set them. An
// unknown name is an error, and so is an invalid value of any program.
func (s *Set) Tune(tuning *pflag.FlagSet, section Raw) error {
	if section.Node == nil {
		return nil
	}
	trial := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, f := range slices.Concat(s.Fields, s.others) {
		if f.Tuning && trial.Lookup(f.Name) == nil {
			f.scratch().register(trial)
		}
	}
	return section.each(func(key string, value node) error {
		tried := trial.Lookup(strings.ReplaceAll(key, "_", "-"))
		if tried == nil || strings.Contains(key, "-") {
			return value.errorf("there is no such field; here are %q", s.tuningKeys())
		}
		if err := assign(tried, value); err != nil {
			return err
		}
		if flag := tuning.Lookup(tried.Name); flag != nil && !flag.Changed {
			return assign(flag, value)
		}
		return nil
	})
}

func (s *Set) tuningKeys() []string {
	var all []string
	for _, f := range slices.Concat(s.Fields, s.others) {
		if f.Tuning {
			all = append(all, f.Key())
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// assign sets a flag to a value of a file.
func assign(flag *pflag.Flag, n node) error {
	if list, ok := flag.Value.(pflag.SliceValue); ok && n.Kind == yaml.SequenceNode {
		var texts []string
		err := n.list(func(_ int, x node) error {
			text, err := x.text()
			texts = append(texts, text)
			return err
		})
		if err != nil {
			return err
		}
		return list.Replace(texts)
	}
	text, err := n.text()
	if err != nil {
		return err
	}
	if err := flag.Value.Set(text); err != nil {
		return n.errorf("%w", Plain(flag.Value, text, err))
	}
	return nil
}

// Tuning reads only the tuning section of a file.
func Tuning(file string) (Raw, error) {
	root, err := readYAML(file)
	if err != nil || root.Kind != yaml.MappingNode {
		return Raw{}, err
	}
	var section Raw
	err = root.each(func(key string, n node) error {
		if key == "tuning" {
			section = Raw{n}
		}
		return nil
	})
	if err != nil {
		return Raw{}, fmt.Errorf("tuning: %w", err)
	}
	return section, nil
}
