package settings

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// A Field is one setting of a program.
type Field struct {
	// Name is the name of the flag, with dashes.
	Name string
	// Tuning settings are keys of the file's tuning section, and no flags. Moved ones were flags.
	Tuning, Moved    bool
	Group, Unit, Doc string
	// Otherwise describes the meaning of an empty value, if it needs a description.
	Otherwise string
	// Choices are the permitted words; empty: any value.
	Choices []string
	Bounds
	// Programs are the programs with the setting, if known.
	Programs []string

	pointer any
	literal string                  // the tag default
	check   func(text string) error // nil: none
	needed  bool                    // it may not be empty
}

// Key returns the name in the file.
func (f *Field) Key() string { return strings.ReplaceAll(f.Name, "-", "_") }

// Variable returns the name of the environment variable.
func (f *Field) Variable() string { return "FORERUNNER_" + strings.ToUpper(f.Key()) }

// A Set is the settings of a program.
type Set struct {
	Fields []*Field
	// others are settings of other programs that may be in the same file.
	others []*Field
}

// Of returns the settings of structs, to which the arguments point, and of the structs in them that
// are tagged settings:"inline".
func Of(structs ...any) *Set {
	s := &Set{}
	for _, x := range structs {
		s.add(reflect.ValueOf(x).Elem())
	}
	return s
}

func (s *Set) add(v reflect.Value) {
	group := ""
	for i := range v.NumField() {
		t := v.Type().Field(i)
		if t.Tag.Get("settings") == "inline" {
			s.add(v.Field(i))
			continue
		}
		if g := t.Tag.Get("group"); g != "" {
			group = g
		}
		if f := fieldOf(t.Tag, v.Field(i)); f != nil {
			f.Group = group
			s.Fields = append(s.Fields, f)
		}
	}
}

// fieldOf returns the setting that a tag describes, nil if it describes none.
func fieldOf(tag reflect.StructTag, v reflect.Value) *Field {
	name, tuning := tag.Get("flag"), false
	if name == "" {
		name, tuning = tag.Get("tuning"), true
	}
	if name == "" {
		return nil
	}
	return &Field{
		Name: strings.ReplaceAll(name, "_", "-"), Tuning: tuning, Moved: tag.Get("moved") != "", Unit: tag.Get("unit"), Doc: tag.Get("doc"),
		Otherwise: tag.Get("otherwise"), Choices: strings.Fields(tag.Get("oneof")), Bounds: boundsOf(tag),
		pointer: v.Addr().Interface(), literal: tag.Get("default"),
	}
}

// Only returns the settings of some groups.
func (s *Set) Only(groups ...string) *Set {
	return s.filter(func(f *Field) bool { return slices.Contains(groups, f.Group) })
}

// Without returns the settings except those with some names.
func (s *Set) Without(names ...string) *Set {
	return s.filter(func(f *Field) bool { return !slices.Contains(names, f.Name) })
}

func (s *Set) filter(keep func(*Field) bool) *Set {
	made := &Set{others: s.others}
	for _, f := range s.Fields {
		if keep(f) {
			made.Fields = append(made.Fields, f)
		}
	}
	return made
}

// By sets the program of the settings.
func (s *Set) By(program string) *Set {
	for _, f := range s.Fields {
		f.Programs = []string{program}
	}
	return s
}

// And returns the settings of both; if both have one with the same name, it takes that of s.
func (s *Set) And(more *Set) *Set {
	made := &Set{Fields: slices.Clone(s.Fields), others: slices.Concat(s.others, more.others)}
	for _, f := range more.Fields {
		i := slices.IndexFunc(made.Fields, func(known *Field) bool { return known.Name == f.Name })
		if i < 0 {
			made.Fields = append(made.Fields, f)
			continue
		}
		both := *made.Fields[i]
		both.Programs = slices.Concat(both.Programs, f.Programs)
		made.Fields[i] = &both
	}
	return made
}

// Beside returns s for a file that is shared with a program that has the settings of other: the
// tuning of that program is checked, and has no effect.
func (s *Set) Beside(other *Set) *Set {
	return &Set{Fields: s.Fields, others: append(slices.Clone(s.others), other.Fields...)}
}

// The annotations of flags that are settings.
const (
	groupOf     = "group"
	unitOf      = "unit"
	otherwiseOf = "otherwise"
	wordsOf     = "words"
)

// Register registers the flags. Tuning settings are in a FlagSet of their own, which no command
// line sets, except by the old flags of moved settings.
func (s *Set) Register(flags *pflag.FlagSet) (tuning *pflag.FlagSet) {
	tuning = pflag.NewFlagSet("tuning", pflag.ContinueOnError)
	for _, field := range s.Fields {
		to := flags
		if field.Tuning {
			to = tuning
		}
		flag := field.register(to)
		flag.Annotations = map[string][]string{groupOf: {field.Group}, unitOf: {field.Placeholder()}}
		if len(field.Choices) > 0 {
			flag.Annotations[wordsOf] = field.Choices
		}
		if field.Otherwise != "" {
			flag.Annotations[otherwiseOf] = []string{field.Otherwise}
		}
		if field.Moved {
			keep(flags, flag)
		}
	}
	return tuning
}

// Words returns the permitted values of a flag; none: any.
func Words(flag *pflag.Flag) []string { return flag.Annotations[wordsOf] }

// Placeholder returns the placeholder of a value: a unit, or the permitted words.
func (f *Field) Placeholder() string {
	if f.Unit == "" && len(f.Choices) > 0 {
		return strings.Join(f.Choices, "|")
	}
	return f.Unit
}

// Type returns the type of the value.
func (f *Field) Type() reflect.Type { return reflect.TypeOf(f.pointer).Elem() }

// Value returns the default as text; empty: there is none.
func (f *Field) Value() string {
	list := reflect.ValueOf(f.pointer).Elem()
	if f.literal == "" && list.Kind() == reflect.Slice && list.Len() > 0 {
		return strings.ReplaceAll(fmt.Sprint(list.Interface()), " ", ", ")
	}
	return f.literal
}

// Line returns the comment for f: its meaning, its unit and its default.
func (f *Field) Line() string {
	var notes []string
	if unit := f.Placeholder(); unit != "" {
		notes = append(notes, unit)
	}
	if otherwise := cmp.Or(f.Otherwise, f.Value()); otherwise != "" {
		notes = append(notes, "default "+otherwise)
	}
	notes = append(notes, f.Programs...)
	if len(notes) == 0 {
		return f.Doc + "."
	}
	return fmt.Sprintf("%s (%s).", f.Doc, strings.Join(notes, "; "))
}

// Tuning returns the settings of the tuning section, by groups.
func (s *Set) Tuning() (all []*Field) {
	var groups []string
	for _, f := range s.Fields {
		if f.Tuning && !slices.Contains(groups, f.Group) {
			groups = append(groups, f.Group)
		}
	}
	for _, g := range groups {
		for _, f := range s.Fields {
			if f.Tuning && f.Group == g {
				all = append(all, f)
			}
		}
	}
	return all
}

// scratch returns f with a separate value.
func (f *Field) scratch() *Field {
	c := *f
	c.pointer = reflect.New(reflect.TypeOf(f.pointer).Elem()).Interface()
	return &c
}

// register registers the flag, with its default.
func (f *Field) register(flags *pflag.FlagSet) *pflag.Flag {
	usage := f.Doc
	switch p := f.pointer.(type) {
	case pflag.Value:
		flags.Var(p, f.Name, usage)
	case *string:
		switch {
		case len(f.Choices) > 0:
			flags.Var(choice{p, f.Choices}, f.Name, usage)
		case f.Unit == Size:
			flags.Var((*sizeText)(p), f.Name, usage)
		default:
			flags.StringVar(p, f.Name, *p, usage)
		}
	case *bool:
		flags.BoolVar(p, f.Name, *p, usage)
	case *int:
		flags.IntVar(p, f.Name, *p, usage)
	case *uint32:
		flags.Uint32Var(p, f.Name, *p, usage)
	case *float64:
		flags.Float64Var(p, f.Name, *p, usage)
	case *time.Duration:
		flags.DurationVar(p, f.Name, *p, usage)
	case *[]string:
		if f.Unit == Path { // which may have commas
			flags.StringArrayVar(p, f.Name, *p, usage)
			break
		}
		flags.StringSliceVar(p, f.Name, *p, usage)
	case *map[string]string:
		flags.StringToStringVar(p, f.Name, *p, usage)
	default:
		panic(fmt.Sprintf("setting %s is a %T", f.Name, p))
	}
	flag := flags.Lookup(f.Name)
	if f.Bounds != (Bounds{}) {
		flag.Value = boundedValue{flag.Value, f.Bounds, f.pointer}
	}
	if f.check != nil {
		flag.Value = checkedValue{flag.Value, f.check}
	}
	if f.needed {
		flag.Value = neededValue{flag.Value}
	}
	if f.literal != "" {
		if err := flag.Value.Set(f.literal); err != nil {
			panic(fmt.Sprintf("default of setting %s: %v", f.Name, err))
		}
		flag.DefValue = f.literal
	}
	return flag
}
