package client

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// Properties are the properties of a platform, NAME=VALUE each; a name may have several values.
// They are the value of a flag that is repeatable, or takes several, separated by commas.
type Properties []string

// String returns them, separated by commas.
func (p *Properties) String() string { return "[" + strings.Join(*p, ",") + "]" }

// Type is for pflag.
func (p *Properties) Type() string { return "properties" }

// Set adds the property in text.
func (p *Properties) Set(text string) error {
	list := []string{text}
	if strings.Count(text, "=") > 1 { // else a comma is part of the value
		var err error
		if list, err = csv.NewReader(strings.NewReader(text)).Read(); err != nil {
			return err
		}
	}
	for _, pair := range list {
		if name, _, ok := strings.Cut(pair, "="); !ok || name == "" {
			return fmt.Errorf("%q is not NAME=VALUE", pair)
		}
	}
	*p = append(*p, list...)
	return nil
}

// Append adds the property in text, for pflag.
func (p *Properties) Append(text string) error { return p.Set(text) }

// Replace sets all properties, for pflag.
func (p *Properties) Replace(all []string) error {
	var made Properties
	for _, text := range all {
		if err := made.Set(text); err != nil {
			return err
		}
	}
	*p = made
	return nil
}

// GetSlice returns all properties, for pflag.
func (p *Properties) GetSlice() []string { return *p }

// Proto returns them as a message, in the order that REv2 requires, each once.
func (p Properties) Proto() *repb.Platform {
	m := &repb.Platform{}
	for _, pair := range slices.Compact(slices.Sorted(slices.Values(p))) {
		name, value, _ := strings.Cut(pair, "=")
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: name, Value: value})
	}
	slices.SortStableFunc(m.Properties, func(a, b *repb.Platform_Property) int { return strings.Compare(a.GetName(), b.GetName()) })
	return m
}
