package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
)

// A node is one value of a YAML file, which knows where it is.
type node struct {
	file string
	// path is like queues[0].levels[1].key; empty for the whole file.
	path string
	*yaml.Node
}

// readYAML returns the only document of a file; a Node of kind 0 if it has none.
func readYAML(file string) (node, error) {
	f, err := os.Open(file)
	if err != nil {
		return node{}, err
	}
	defer f.Close()
	var document, more yaml.Node
	d := yaml.NewDecoder(f)
	switch err := d.Decode(&document); {
	case errors.Is(err, io.EOF):
		return node{file: file, Node: &yaml.Node{}}, nil
	case err != nil:
		return node{}, fmt.Errorf("%s: %w", file, err)
	}
	if err := d.Decode(&more); !errors.Is(err, io.EOF) {
		return node{}, fmt.Errorf("%s: there is more than one document", file)
	}
	return node{file: file, Node: document.Content[0]}, nil
}

func (n node) errorf(format string, args ...any) error {
	where := fmt.Sprintf("%s:%d:%d", n.file, n.Line, n.Column)
	if n.path != "" {
		where += ": " + n.path
	}
	return fmt.Errorf("%s: %w", where, fmt.Errorf(format, args...))
}

// child returns a value inside n.
func (n node) child(path string, x *yaml.Node) node {
	if x.Kind == yaml.AliasNode {
		x = x.Alias
	}
	return node{n.file, n.path + path, x}
}

// each calls read for all values of a mapping, with their keys.
func (n node) each(read func(key string, value node) error) error {
	if n.Kind != yaml.MappingNode {
		return n.errorf("this has to be a mapping, name: value")
	}
	seen := map[string]bool{}
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i].Value
		path := "." + key
		if n.path == "" {
			path = key
		}
		if seen[key] {
			return node{n.file, n.path + path, n.Content[i]}.errorf("this is here twice")
		}
		seen[key] = true
		if err := read(key, n.child(path, n.Content[i+1])); err != nil {
			return err
		}
	}
	return nil
}

// fields reads a mapping by the names that it may have, and returns which it has.
func (n node) fields(readers map[string]func(node) error) (has map[string]bool, err error) {
	has = map[string]bool{}
	err = n.each(func(key string, value node) error {
		read, known := readers[key]
		if !known {
			return value.errorf("there is no such field; here are %q", slices.Sorted(maps.Keys(readers)))
		}
		has[key] = true
		return read(value)
	})
	return has, err
}

// fill reads the fields of x, which then has to make sense.
func (n node) fill(x interface{ Validate() error }, readers map[string]func(node) error) error {
	if _, err := n.fields(readers); err != nil {
		return err
	}
	if err := x.Validate(); err != nil {
		return n.errorf("%w", err)
	}
	return nil
}

// list calls read for all values of a sequence.
func (n node) list(read func(node) error) error {
	if n.Kind != yaml.SequenceNode {
		return n.errorf("this has to be a list")
	}
	for i, x := range n.Content {
		if err := read(n.child(fmt.Sprintf("[%d]", i), x)); err != nil {
			return err
		}
	}
	return nil
}

func (n node) text(into *string) error {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return n.errorf("this has to be text")
	}
	*into = n.Value
	return nil
}

// words reads a list of texts.
func (n node) words(into *[]string) error {
	*into = []string{}
	return n.list(func(n node) error {
		var s string
		err := n.text(&s)
		*into = append(*into, s)
		return err
	})
}

func (n node) flag(into *bool) error {
	if err := n.Decode(into); err != nil {
		return n.errorf("%q is neither true nor false", n.Value)
	}
	return nil
}

func (n node) texts(into *map[string]string) error {
	*into = map[string]string{}
	return n.each(func(key string, value node) error {
		var s string
		err := value.text(&s)
		(*into)[key] = s
		return err
	})
}

func (n node) duration(into *time.Duration) (err error) {
	if *into, err = time.ParseDuration(n.Value); err != nil {
		return n.errorf("%q is no time such as 30s or 1m30s", n.Value)
	}
	return nil
}

// count reads a whole number above zero.
func (n node) count(into *int) error {
	if err := n.Decode(into); err != nil || *into < 1 {
		return n.errorf("%q is no whole number above zero", n.Value)
	}
	return nil
}

func (n node) numbers(into *map[string]float64) error {
	*into = map[string]float64{}
	return n.each(func(key string, value node) error {
		var x float64
		err := value.number(&x)
		(*into)[key] = x
		return err
	})
}

func (n node) number(into *float64) error {
	if err := n.Decode(into); err != nil {
		return n.errorf("%q is no number", n.Value)
	}
	return nil
}

// aboveZero reads what would be the default if it were zero, which nobody means who writes 0.
func aboveZero[T float64 | time.Duration](n node, read func(node, *T) error, into *T) error {
	if err := read(n, into); err != nil {
		return err
	}
	if !(*into > 0) {
		return n.errorf("%q is not above zero", n.Value)
	}
	return nil
}
