package settings

import (
	"fmt"
	"slices"
)

// A choice is a text that is one of a few words.
type choice struct {
	value *string
	words []string
}

// String returns the word.
func (c choice) String() string { return *c.value }

// Type is for pflag.
func (c choice) Type() string { return "choice" }

// Set accepts one of the words.
func (c choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		return fmt.Errorf("%q is none of %q", s, c.words)
	}
	*c.value = s
	return nil
}
