package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"
)

// A node is one value of a YAML file, with its position.
type node struct {
	file string
	// path is like queues[0].levels[1].key; empty for the whole file.
	path string
	*yaml.Node
}

// readYAML returns the only document of a file; a Node of kind 0 if it has none.
func readYAML(file string) (node, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return node{}, err
	}
	return parseYAML(file, text)
}

// parseYAML is readYAML of a file's contents.
func parseYAML(file string, text []byte) (node, error) {
	var document, more yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
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

// list calls read for all values of a sequence.
func (n node) list(read func(i int, value node) error) error {
	if n.Kind != yaml.SequenceNode {
		return n.errorf("this has to be a list")
	}
	for i, x := range n.Content {
		if err := read(i, n.child(fmt.Sprintf("[%d]", i), x)); err != nil {
			return err
		}
	}
	return nil
}

// text returns a value as it is written.
func (n node) text() (string, error) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		return "", n.errorf("this has to be text")
	}
	return n.Value, nil
}
