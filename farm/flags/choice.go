package flags

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Choice is the value of a flag that takes one of a few words.
func Choice(value *string, words ...string) pflag.Value { return choice{value, words} }

type choice struct {
	value *string
	words []string
}

func (c choice) String() string { return *c.value }
func (c choice) Type() string   { return "choice" }

func (c choice) Set(s string) error {
	for _, w := range c.words {
		if s == w {
			*c.value = s
			return nil
		}
	}
	return fmt.Errorf("%q is none of %q", s, c.words)
}
