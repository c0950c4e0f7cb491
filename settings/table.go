package settings

import (
	"reflect"
	"slices"
	"strings"
	"time"
)

// A Row is a field of a file.
type Row struct {
	Name, Default, Doc, Example string
	Required, Inline            bool
	// Named is the field of a list's elements that has the key under which each is written.
	Named string
	Bounds
	// EachMin is the minimum of the numbers in a list.
	EachMin string
	Type    reflect.Type
	index   int
}

// Choices returns the permitted words of a value of the type; none: any.
func Choices(t reflect.Type) []string {
	if c, ok := reflect.Zero(t).Interface().(interface{ Choices() []string }); ok {
		return c.Choices()
	}
	return nil
}

// IsTime reports whether a type is a time.Duration.
func IsTime(t reflect.Type) bool { return t == reflect.TypeFor[time.Duration]() }

// Rows returns the fields of a struct that a file may have.
func Rows(t reflect.Type) (rows []Row) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, found := f.Tag.Lookup("yaml")
		name, options, _ := strings.Cut(tag, ",")
		if !found || name == "-" {
			continue
		}
		rows = append(rows, Row{
			Name: name, Required: options == "required", Inline: options == "inline", Named: f.Tag.Get("named"),
			Default: f.Tag.Get("default"), Doc: f.Tag.Get("doc"), Example: f.Tag.Get("example"),
			Bounds: boundsOf(f.Tag), EachMin: f.Tag.Get("eachmin"),
			Type: f.Type, index: i,
		})
	}
	return rows
}

// names returns the names of rows, in order.
func names(rows []Row) []string {
	var all []string
	for _, r := range rows {
		all = append(all, r.Name)
	}
	slices.Sort(all)
	return all
}
