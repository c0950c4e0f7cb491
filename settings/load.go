package settings

import (
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strconv"
	"time"
)

// Load reads the YAML file into the struct that into points to. Unknown fields and invalid values
// are errors that name file, line, column and field. An empty file changes nothing.
func Load(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return Parse(file, text, into)
}

// Parse is Load of a file's contents.
func Parse(file string, text []byte, into any) error {
	root, err := parseYAML(file, text)
	if err != nil || root.Kind == 0 {
		return err
	}
	return (&reader{nodes: map[string]node{}}).structure(root, reflect.ValueOf(into).Elem())
}

// A reader fills in values, and knows their positions in the file.
type reader struct{ nodes map[string]node }

// structure reads a mapping, or with an inline field the value of that.
func (r *reader) structure(n node, v reflect.Value) error {
	rows := Rows(v.Type())
	if len(rows) == 1 && rows[0].Inline {
		if err := r.value(n, v.Field(rows[0].index), rows[0]); err != nil {
			return err
		}
		return r.validate(n, v)
	}
	has := map[string]bool{}
	err := n.each(func(key string, value node) error {
		i := slices.IndexFunc(rows, func(row Row) bool { return row.Name == key })
		if i < 0 {
			return value.errorf("there is no such field; here are %q", names(rows))
		}
		has[key] = true
		r.nodes[value.path] = value
		return r.value(value, v.Field(rows[i].index), rows[i])
	})
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.Required && !has[row.Name] {
			return n.errorf("field %s is missing: %s", row.Name, row.Doc)
		}
	}
	return r.validate(n, v)
}

// validate asks a struct whether it makes sense.
func (r *reader) validate(n node, v reflect.Value) error {
	x, ok := v.Addr().Interface().(interface{ Validate() error })
	if !ok {
		return nil
	}
	err := x.Validate()
	if err == nil {
		return nil
	}
	var misplaced interface {
		error
		Where() string
	}
	if errors.As(err, &misplaced) {
		for _, path := range []string{misplaced.Where(), n.path + misplaced.Where()} {
			if at, ok := r.nodes[path]; ok {
				n = at
			}
		}
	}
	return n.errorf("%w", err)
}

// value reads a value of any kind.
func (r *reader) value(n node, v reflect.Value, row Row) error {
	switch {
	case v.Type() == reflect.TypeFor[Raw]():
		v.Set(reflect.ValueOf(Raw{n}))
		return nil
	case v.Kind() == reflect.Struct:
		return r.structure(n, v)
	case v.Kind() == reflect.Slice && row.Named != "":
		return r.named(n, v, row)
	case v.Kind() == reflect.Slice:
		return r.list(n, v, row)
	case v.Kind() == reflect.Map:
		return r.mapping(n, v, row)
	}
	return scalar(n, v, row)
}

// named reads a mapping into a list whose elements have the keys.
func (r *reader) named(n node, v reflect.Value, row Row) error {
	all := reflect.MakeSlice(v.Type(), 0, len(n.Content)/2)
	err := n.each(func(key string, value node) error {
		r.nodes[value.path] = value
		x := reflect.New(v.Type().Elem()).Elem()
		x.FieldByName(row.Named).SetString(key)
		if err := r.structure(value, x); err != nil {
			return err
		}
		all = reflect.Append(all, x)
		return nil
	})
	v.Set(all)
	return err
}

// list reads a sequence. It replaces the old contents of v.
func (r *reader) list(n node, v reflect.Value, row Row) error {
	all := reflect.MakeSlice(v.Type(), 0, len(n.Content))
	element := row
	element.Min, element.Max = row.EachMin, ""
	err := n.list(func(_ int, value node) error {
		r.nodes[value.path] = value
		x := reflect.New(v.Type().Elem()).Elem()
		if err := r.value(value, x, element); err != nil {
			return err
		}
		all = reflect.Append(all, x)
		return nil
	})
	if err != nil {
		return err
	}
	v.Set(all)
	if least, _ := strconv.Atoi(row.Min); all.Len() < least {
		return n.errorf("this list has %d entries, at least %d are needed", all.Len(), least)
	}
	if most, err := strconv.Atoi(row.Max); err == nil && all.Len() > most {
		return n.errorf("this list has %d entries, at most %d are possible", all.Len(), most)
	}
	return nil
}

// mapping reads a mapping from texts.
func (r *reader) mapping(n node, v reflect.Value, row Row) error {
	all := reflect.MakeMap(v.Type())
	err := n.each(func(key string, value node) error {
		x := reflect.New(v.Type().Elem()).Elem()
		if err := r.value(value, x, row); err != nil {
			return err
		}
		all.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), x)
		return nil
	})
	v.Set(all)
	return err
}

// scalar reads a text, a word, a number, a time or a truth value.
func scalar(n node, v reflect.Value, row Row) error {
	text, err := n.text()
	if err != nil && v.Kind() == reflect.String {
		return err
	}
	switch {
	case v.Kind() == reflect.String:
		if words := Choices(v.Type()); words != nil && !slices.Contains(words, text) {
			return n.errorf("%q is none of %q", text, words)
		}
		v.SetString(text)
	case IsTime(v.Type()):
		d, err := time.ParseDuration(n.Value)
		if err != nil {
			return n.errorf("%q is not a time such as 30s or 1m30s", n.Value)
		}
		if d < 0 {
			return n.errorf("%q is a negative time", n.Value)
		}
		v.SetInt(int64(d))
		return bounded(n, d.Seconds(), row)
	case v.Kind() == reflect.Bool:
		if err := n.Decode(v.Addr().Interface()); err != nil {
			return n.errorf("%q is neither true nor false", n.Value)
		}
	default:
		return number(n, v, row)
	}
	return nil
}

// number reads a number.
func number(n node, v reflect.Value, row Row) error {
	kind := "whole number"
	if v.CanFloat() {
		kind = "number"
	}
	if err := n.Decode(v.Addr().Interface()); err != nil {
		return n.errorf("%q is not a %s", n.Value, kind)
	}
	x := v.Convert(reflect.TypeFor[float64]()).Float()
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return n.errorf("%q is not a %s", n.Value, kind)
	}
	return bounded(n, x, row)
}

// bounded returns an error if a number is outside of the bounds of its field.
func bounded(n node, x float64, row Row) error {
	if err := row.check(n.Value, x); err != nil {
		return n.errorf("%w", err)
	}
	return nil
}
