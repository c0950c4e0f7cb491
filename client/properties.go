package client

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// Properties are the properties of a platform, each NAME=VALUE. A name may have several values. As
// the value of a flag they are separated by commas, and the flag may be repeated.
type Properties []string

// String returns the properties, separated by commas.
func (p *Properties) String() string { return "[" + strings.Join(*p, ",") + "]" }

// Type implements pflag.Value.
func (p *Properties) Type() string { return "properties" }

// Set adds the properties in text. It implements pflag.Value.
func (p *Properties) Set(text string) error {
	list := []string{text}
	if strings.Count(text, "=") > 1 { // otherwise a comma is part of the value
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

// Append adds the properties in text. It implements pflag.SliceValue.
func (p *Properties) Append(text string) error { return p.Set(text) }

// Replace sets all properties. It implements pflag.SliceValue.
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

// GetSlice returns all properties. It implements pflag.SliceValue.
func (p *Properties) GetSlice() []string { return *p }

// Proto returns the properties as a message, in the order that REv2 requires and without
// duplicates.
func (p Properties) Proto() *repb.Platform {
	m := &repb.Platform{}
	for _, pair := range slices.Compact(slices.Sorted(slices.Values(p))) {
		name, value, _ := strings.Cut(pair, "=")
		m.Properties = append(m.Properties, &repb.Platform_Property{Name: name, Value: value})
	}
	slices.SortStableFunc(m.Properties, func(a, b *repb.Platform_Property) int { return strings.Compare(a.GetName(), b.GetName()) })
	return m
}
