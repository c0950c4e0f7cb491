package settings

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// A WrongError means that the settings or arguments of a program cannot be used, alone or together.
// The program has done nothing, but for a lack of the machine that shows later. Every check of a
// setting returns one: package flags gives it its exit code.
type WrongError struct{ Err error }

func (e *WrongError) Error() string { return e.Err.Error() }

func (e *WrongError) Unwrap() error { return e.Err }

// Wrong returns a WrongError with a text as of fmt.Errorf.
func Wrong(format string, args ...any) error { return &WrongError{fmt.Errorf(format, args...)} }

// Checked makes the settings with some names refuse values for which check returns an error. An
// empty value is not checked. A name without a setting has no effect.
func (s *Set) Checked(check func(text string) error, names ...string) *Set {
	for _, f := range s.Fields {
		for _, name := range names {
			if f.Name == name {
				f.check = check
			}
		}
	}
	return s
}

// Needed makes the settings with some names refuse an empty value. A name without a setting has no
// effect.
func (s *Set) Needed(names ...string) *Set {
	for _, f := range s.Fields {
		f.needed = f.needed || slices.Contains(names, f.Name)
	}
	return s
}

// A neededValue is the value of a flag that may not be empty.
type neededValue struct{ pflag.Value }

// Set sets a value that is not empty.
func (v neededValue) Set(text string) error {
	if text == "" {
		return Wrong("it is empty")
	}
	return v.Value.Set(text)
}

// A checkedValue is the value of a flag that has a check.
type checkedValue struct {
	pflag.Value
	check func(text string) error
}

// Set sets a value that passes the check.
func (v checkedValue) Set(text string) error {
	if text != "" {
		if err := v.check(text); err != nil {
			return err
		}
	}
	return v.Value.Set(text)
}
