package settings

import (
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// Bounds are the limits of a number or of a time in seconds, as they are in tags; empty ones have
// no effect.
type Bounds struct{ Min, Max, Above, Below string }

func boundsOf(tag reflect.StructTag) Bounds {
	return Bounds{Min: tag.Get("min"), Max: tag.Get("max"), Above: tag.Get("above"), Below: tag.Get("below")}
}

// check returns an error if x, with this text, is out of range.
func (b Bounds) check(text string, x float64) error {
	for _, side := range []struct {
		bound, fault string
		holds        func(bound float64) bool
	}{
		{b.Min, "less than", func(bound float64) bool { return x >= bound }},
		{b.Max, "more than", func(bound float64) bool { return x <= bound }},
		{b.Above, "not above", func(bound float64) bool { return x > bound }},
		{b.Below, "not below", func(bound float64) bool { return x < bound }},
	} {
		if bound, err := strconv.ParseFloat(side.bound, 64); err == nil && !side.holds(bound) {
			return fmt.Errorf("%q is %s %s", text, side.fault, side.bound)
		}
	}
	return nil
}

// Bound gives a flag that was registered by hand its limits. value points to its number or time.
func Bound(flags *pflag.FlagSet, name string, value any, b Bounds) {
	flag := flags.Lookup(name)
	flag.Value = boundedValue{flag.Value, b, value}
}

// A boundedValue is the value of a flag that has Bounds.
type boundedValue struct {
	pflag.Value
	bounds  Bounds
	pointer any // to the number or time that Value sets
}

// Set parses a value within the bounds.
func (v boundedValue) Set(text string) error {
	if err := v.Value.Set(text); err != nil {
		return err
	}
	var x float64
	switch p := v.pointer.(type) {
	case *int:
		x = float64(*p)
	case *int64:
		x = float64(*p)
	case *uint32:
		x = float64(*p)
	case *float64:
		x = *p
	case *time.Duration:
		x = p.Seconds()
	}
	return v.bounds.check(text, x)
}
