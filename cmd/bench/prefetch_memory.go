package main

import (
	"errors"

	"github.com/forerunner-build/forerunner/cmd/farm"
)

// errNotBuiltIn is why a row is not measured that needs profiles.
var errNotBuiltIn = errors.New("not built in yet")

// remember has w remember what actions read and prefetch accordingly, unless the
// setting is plain.
func remember(_ *farm.Worker, s setting) error {
	if s.memory != "" || s.keep != "" {
		return errNotBuiltIn
	}
	return nil
}

// canRemember reports whether workers have profiles at all.
func canRemember() bool {
	return !errors.Is(remember(&farm.Worker{}, setting{keep: "somewhere"}), errNotBuiltIn)
}
