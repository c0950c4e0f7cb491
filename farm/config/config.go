package config

import (
	"fmt"
	"maps"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// Check returns what is wrong with a scheduler's configuration file: an error that names file,
// line, column and field, nil if a scheduler would start with it. What is named in it, such as files of
// keys, is not looked at.
func Check(file string) error {
	var c core.Config
	if err := Load(file, &c, &auth.Options{}, &sizeclass.Options{}); err != nil {
		return err
	}
	if _, err := core.NewState(c); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// Files are a configuration file and those that it names. What is wrong with it, who uses it says.
func Files(file string) []string {
	if file == "" {
		return nil
	}
	files := []string{file}
	var access auth.Options
	_ = Load(file, &core.Config{}, &access, &sizeclass.Options{})
	for _, i := range access.Issuers {
		if i.KeysFile != "" {
			files = append(files, i.KeysFile)
		}
	}
	return files
}

// Load fills in what a scheduler's configuration file says, of access and of learning size
// classes too. Whatever it does not know, and whatever makes no sense, is an error that names file,
// line, column and field.
func Load(file string, c *core.Config, access *auth.Options, sizes *sizeclass.Options) error {
	root, err := readYAML(file)
	if err != nil {
		return err
	}
	if root.Kind == 0 {
		return nil // an empty file
	}
	fields := map[string]func(node) error{
		"queues": func(n node) error {
			return n.list(func(n node) error {
				q, err := readQueue(n)
				c.Queues = append(c.Queues, q)
				return err
			})
		},
		"size_classes": func(n node) error {
			return n.list(func(n node) error {
				d, err := readSizes(n)
				c.Sizes = append(c.Sizes, d)
				return err
			})
		},
		"learn_sizes": func(n node) error { return readLearning(n, sizes) },
	}
	maps.Copy(fields, accessFields(access))
	quotas, checkQuotas := quotaFields(c)
	maps.Copy(fields, quotas)
	if _, err = root.fields(fields); err != nil {
		return err
	}
	return checkQuotas()
}

func readQueue(n node) (q core.QueueConfig, err error) {
	has, err := n.fields(map[string]func(node) error{
		"instance_name_prefix": func(n node) error { return n.text(&q.Prefix) },
		"platform":             func(n node) error { return n.texts(&q.Platform) },
		"levels": func(n node) error {
			return n.list(func(n node) error {
				l, err := readLevel(n)
				q.Levels = append(q.Levels, l)
				return err
			})
		},
	})
	switch {
	case err != nil:
		return q, err
	case !has["levels"]:
		return q, n.errorf("field levels is missing; for one queue it is []")
	}
	if err := q.Validate(); err != nil {
		return q, n.errorf("%w", err)
	}
	return q, nil
}

func readSizes(n node) (c core.SizesConfig, err error) {
	err = n.fill(&c, map[string]func(node) error{
		"instance_name_prefix": func(n node) error { return n.text(&c.Prefix) },
		"platform":             func(n node) error { return n.texts(&c.Platform) },
		"classes": func(n node) error {
			if err := n.Decode(&c.Classes); err != nil {
				return n.errorf("this has to be a list of numbers such as [1, 4]")
			}
			return nil
		},
		"startup":  func(n node) error { return n.duration(&c.Startup) },
		"patience": func(n node) error { return n.duration(&c.Patience) },
	})
	return c, err
}

// readLearning reads how size classes are learned.
func readLearning(n node, o *sizeclass.Options) error {
	rules := sizeclass.DefaultRules()
	o.Rules = &rules
	return n.fill(o, map[string]func(node) error{
		"exponent":           func(n node) error { return aboveZero(n, node.number, &o.Exponent) },
		"timeout_multiplier": func(n node) error { return aboveZero(n, node.number, &o.TimeoutMultiplier) },
		"min_timeout":        func(n node) error { return aboveZero(n, node.duration, &o.MinTimeout) },
		"failure_cache":      func(n node) error { return aboveZero(n, node.duration, &o.FailureCache) },
		"history":            func(n node) error { return n.count(&o.History) },
		"rules": func(n node) error {
			_, err := n.fields(map[string]func(node) error{
				"resources":      func(n node) error { return n.flag(&rules.Resources) },
				"across_classes": func(n node) error { return n.flag(&rules.AcrossClasses) },
				"kinds":          func(n node) error { return n.flag(&rules.Kinds) },
				"least":          func(n node) error { return n.flag(&rules.Least) },
				"queues":         func(n node) error { return n.flag(&rules.Queues) },
				"hedging":        func(n node) error { return n.flag(&rules.Hedging) },
			})
			return err
		},
	})
}

func readLevel(n node) (l core.Level, err error) {
	err = n.fill(&l, map[string]func(node) error{
		"key":        func(n node) error { return n.text((*string)(&l.Key)) },
		"name":       func(n node) error { return n.text(&l.Name) },
		"stickiness": func(n node) error { return n.duration(&l.Stickiness) },
		"weights":    func(n node) error { return n.numbers(&l.Weights) },
	})
	return l, err
}
