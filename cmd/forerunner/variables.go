package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/proto/names"
)

// variables are the value of a flag that takes one name=value each time. A value is taken as it is,
// commas included.
type variables map[string]string

// String implements pflag.Value.
func (v *variables) String() string { return names.Pairs(*v) }

// Type implements pflag.Value.
func (v *variables) Type() string { return "name=value" }

// Set implements pflag.Value.
func (v *variables) Set(pair string) error {
	name, value, ok := strings.Cut(pair, "=")
	if !ok || name == "" {
		return errors.New("it is not of the form name=value")
	}
	if *v == nil {
		*v = variables{}
	}
	(*v)[name] = value
	return nil
}

// Append implements pflag.SliceValue.
func (v *variables) Append(pair string) error { return v.Set(pair) }

// Replace implements pflag.SliceValue.
func (v *variables) Replace(pairs []string) error {
	*v = nil
	for _, pair := range pairs {
		if err := v.Set(pair); err != nil {
			return err
		}
	}
	return nil
}

// GetSlice implements pflag.SliceValue.
func (v *variables) GetSlice() (pairs []string) {
	for name, value := range *v {
		pairs = append(pairs, name+"="+value)
	}
	slices.Sort(pairs)
	return pairs
}
