package reference

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/forerunner-build/forerunner/settings"
)

// exampleWidth is the width of comments.
const exampleWidth = 100

// Example returns a file with all fields of a t, with comments, below a heading.
func Example(heading string, t reflect.Type, tuning *settings.Set) string {
	e := &example{tuning: tuning}
	e.b.WriteString(heading)
	e.structure(t, "", true)
	return e.b.String()
}

type example struct {
	b      strings.Builder
	tuning *settings.Set
}

func (e *example) comment(indent, text string) {
	for _, line := range settings.Wrap(text, exampleWidth-len(indent)-2) {
		fmt.Fprintf(&e.b, "%s# %s\n", indent, line)
	}
}

// structure writes the fields of a struct, with an empty line before each top-level field.
func (e *example) structure(t reflect.Type, indent string, top bool) {
	first := strings.ReplaceAll(indent, "-", " ")
	for i, r := range settings.Rows(t) {
		here := first
		if top {
			e.b.WriteString("\n")
		}
		e.comment(first, described(r))
		if i == 0 {
			here = indent
		}
		e.row(r, here, first)
	}
}

// described is the description of a field.
func described(r settings.Row) string {
	var notes []string
	if words := settings.Choices(elementOf(r.Type)); words != nil {
		notes = append(notes, strings.Join(words, ", "))
	}
	if r.Default != "" {
		notes = append(notes, "default "+r.Default)
	}
	text := strings.ToUpper(r.Doc[:1]) + r.Doc[1:]
	if len(notes) > 0 {
		text += " (" + strings.Join(notes, "; ") + ")"
	}
	return text + "."
}

// elementOf is the type of the elements of a list, else the type itself.
func elementOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Slice {
		return t.Elem()
	}
	return t
}

// row writes a field, whose name follows; fields below it are indented more than deeper.
func (e *example) row(r settings.Row, here, deeper string) {
	element := elementOf(r.Type)
	switch {
	case r.Type == reflect.TypeFor[settings.Raw]():
		fmt.Fprintf(&e.b, "%s%s:\n", here, r.Name)
		e.section()
	case r.Example != "":
		if element.Kind() == reflect.Struct {
			for _, below := range settings.Rows(element) {
				if !below.Inline {
					e.comment(deeper, "  "+below.Name+": "+described(below))
				}
			}
		}
		fmt.Fprintf(&e.b, "%s%s: %s\n", here, r.Name, r.Example)
	case element.Kind() == reflect.Struct && element != r.Type:
		fmt.Fprintf(&e.b, "%s%s:\n", here, r.Name)
		e.structure(element, deeper+"  - ", false)
	case element.Kind() == reflect.Struct:
		fmt.Fprintf(&e.b, "%s%s:\n", here, r.Name)
		e.structure(element, deeper+"  ", false)
	default:
		fmt.Fprintf(&e.b, "%s%s: %s\n", here, r.Name, r.Default)
	}
}

// section writes the tuning section. A setting without a default is a comment.
func (e *example) section() {
	group := ""
	for _, f := range e.tuning.Tuning() {
		if f.Group != group {
			group = f.Group
			fmt.Fprintf(&e.b, "  # --- %s\n", group)
		}
		e.comment("  ", f.Line())
		if value := f.Value(); value != "" {
			fmt.Fprintf(&e.b, "  %s: %s\n", f.Key(), value)
		} else {
			fmt.Fprintf(&e.b, "  # %s:\n", f.Key())
		}
	}
}
