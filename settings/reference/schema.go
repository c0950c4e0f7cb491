package reference

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/forerunner-build/forerunner/settings"
)

// schemaID begins the names of schemas.
const schemaID = "https://github.com/forerunner-build/forerunner/deploy/"

// Schema returns the JSON schema of a file for a t. tuning is the content of its Raw field.
func Schema(name, title string, t reflect.Type, tuning *settings.Set) (string, error) {
	s := schemas{tuning}.structure(t)
	s.Schema, s.ID, s.Title = "https://json-schema.org/draft/2020-12/schema", schemaID+name, title
	s.Defs = map[string]*jsonschema.Schema{
		"text": {Types: []string{"string", "number", "boolean"}},
		"time": {
			Description: "Such as 30s, 1m30s or 24h.",
			AnyOf: []*jsonschema.Schema{
				{Type: "string", Pattern: `^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))+$`},
				{Const: jsonschema.Ptr[any](0)},
			},
		},
		"size": {
			Description: "Bytes, such as 500M or 20GiB.",
			AnyOf: []*jsonschema.Schema{
				{Type: "string", Pattern: `^([0-9]+([kKMGT]i?B?|B)?)?$`}, {Type: "integer", Minimum: jsonschema.Ptr(0.0)},
			},
		},
	}
	text, err := json.MarshalIndent(s, "", "  ")
	return string(text) + "\n", err
}

// schemas makes schemas of types.
type schemas struct{ tuning *settings.Set }

func ref(name string) *jsonschema.Schema { return &jsonschema.Schema{Ref: "#/$defs/" + name} }

// nothingElse refuses all properties that are not named.
func nothingElse() *jsonschema.Schema { return &jsonschema.Schema{Not: &jsonschema.Schema{}} }

func (b schemas) structure(t reflect.Type) *jsonschema.Schema {
	rows := settings.Rows(t)
	if len(rows) == 1 && rows[0].Inline {
		return b.row(rows[0])
	}
	s := &jsonschema.Schema{Type: "object", AdditionalProperties: nothingElse(), Properties: map[string]*jsonschema.Schema{}}
	for _, r := range rows {
		s.Properties[r.Name] = b.row(r)
		s.PropertyOrder = append(s.PropertyOrder, r.Name)
		if r.Required {
			s.Required = append(s.Required, r.Name)
		}
	}
	return s
}

// row returns the schema of a field.
func (b schemas) row(r settings.Row) *jsonschema.Schema {
	s := b.of(r.Type, r)
	s.Description = r.Doc
	if r.Default != "" {
		s.Description += fmt.Sprintf(" (default %s)", r.Default)
	}
	return s
}

// of returns the schema of a type with the bounds of a field.
func (b schemas) of(t reflect.Type, r settings.Row) *jsonschema.Schema {
	words := settings.Choices(t)
	switch {
	case t == reflect.TypeFor[settings.Raw]():
		return b.section()
	case settings.IsTime(t):
		return ref("time")
	case words != nil:
		s := &jsonschema.Schema{}
		for _, w := range words {
			s.Enum = append(s.Enum, w)
		}
		return s
	}
	switch t.Kind() {
	case reflect.Struct:
		return b.structure(t)
	case reflect.Slice:
		return b.list(t, r)
	case reflect.Map:
		s := &jsonschema.Schema{Type: "object"}
		if t.Elem().Kind() == reflect.String {
			s.MinProperties = count(r.Min)
			r.Min = ""
		}
		s.AdditionalProperties = b.of(t.Elem(), r)
		return s
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}
	case reflect.String:
		s := ref("text")
		if r.Required {
			s.MinLength = jsonschema.Ptr(1)
		}
		return s
	}
	return numeric(t, r)
}

func (b schemas) list(t reflect.Type, r settings.Row) *jsonschema.Schema {
	if r.Named != "" {
		return &jsonschema.Schema{
			Type: "object", PropertyNames: &jsonschema.Schema{MinLength: jsonschema.Ptr(1)},
			AdditionalProperties: b.of(t.Elem(), settings.Row{}),
		}
	}
	return &jsonschema.Schema{
		Type: "array", MinItems: count(r.Min), MaxItems: count(r.Max), Items: b.of(t.Elem(), settings.Row{Bounds: settings.Bounds{Min: r.EachMin}}),
	}
}

// numeric returns the schema of a number.
func numeric(t reflect.Type, r settings.Row) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "integer", Minimum: bound(r.Min), Maximum: bound(r.Max), ExclusiveMinimum: bound(r.Above), ExclusiveMaximum: bound(r.Below),
	}
	switch t.Kind() {
	case reflect.Float64:
		s.Type = "number"
	case reflect.Uint32:
		s.Maximum = jsonschema.Ptr(float64(1<<32 - 1))
	}
	return s
}

func bound(tag string) *float64 {
	x, err := strconv.ParseFloat(tag, 64)
	if err != nil {
		return nil
	}
	return &x
}

func count(tag string) *int {
	n, err := strconv.Atoi(tag)
	if err != nil {
		return nil
	}
	return &n
}

// section returns the schema of a tuning section.
func (b schemas) section() *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "object", AdditionalProperties: nothingElse(), Properties: map[string]*jsonschema.Schema{}}
	for _, f := range b.tuning.Tuning() {
		p := &jsonschema.Schema{}
		switch t := f.Type(); {
		case len(f.Choices) > 0:
			for _, w := range f.Choices {
				p.Enum = append(p.Enum, w)
			}
		case f.Unit == settings.Size:
			p = ref("size")
		case f.Unit == settings.Time:
			p = ref("time")
		case t.Kind() == reflect.Slice:
			p.Type, p.Items = "array", ref("text")
		default:
			p = b.of(t, settings.Row{})
		}
		p.Description = f.Line()
		s.Properties[f.Key()] = p
		s.PropertyOrder = append(s.PropertyOrder, f.Key())
	}
	return s
}
