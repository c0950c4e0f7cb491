package web

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	// What workers pack into their metadata is known by its registration.
	"github.com/forerunner-build/forerunner/proto/actionstats"
	_ "github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/web/text"
)

// Facts are what one message says, for people.
type Facts struct {
	Title string
	Rows  []Fact
}

// A Fact is one field of a message.
type Fact struct{ Name, Value string }

// Told returns what a worker tells of an action that has ended: its stages, and what it packed into the
// metadata, as far as that is known here.
func Told(m *repb.ExecutedActionMetadata) []Facts {
	stages := Facts{Title: "Stages"}
	for _, s := range spans(m) {
		stages.Rows = append(stages.Rows, Fact{s.Name, s.Took.Round(time.Microsecond).String()})
	}
	if len(stages.Rows) == 0 {
		return factsOf(m.GetAuxiliaryMetadata())
	}
	return append([]Facts{stages}, factsOf(m.GetAuxiliaryMetadata())...)
}

// DropUnknown removes what a worker of another make packed into its metadata, and nobody here knows.
func DropUnknown(m *repb.ExecutedActionMetadata) {
	if m != nil {
		m.AuxiliaryMetadata = slices.DeleteFunc(m.AuxiliaryMetadata, func(packed *anypb.Any) bool {
			_, err := packed.UnmarshalNew()
			return err != nil
		})
	}
}

// factsOf shows the messages whose type is known.
func factsOf(list []*anypb.Any) []Facts {
	var all []Facts
	for _, packed := range list {
		m, err := packed.UnmarshalNew()
		if err != nil {
			continue // of another worker
		}
		if f := FactsOf(m); len(f.Rows) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// FactsOf shows a message field by field, in the order of its schema. Lists and what is not set are left
// out.
func FactsOf(m proto.Message) Facts {
	f := Facts{Title: words(string(m.ProtoReflect().Descriptor().Name()))}
	m.ProtoReflect().Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if value := factText(d, v); value != "" {
			f.Rows = append(f.Rows, Fact{strings.ReplaceAll(string(d.Name()), "_", " "), value})
		}
		return true
	})
	sortFacts(f.Rows, m.ProtoReflect().Descriptor().Fields())
	return f
}

// factText writes a field that is neither a list nor a message of parts.
func factText(d protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if d.IsList() || d.IsMap() {
		return ""
	}
	if d.Message() != nil {
		var m proto.Message = v.Message().Interface()
		switch m := m.(type) {
		case *durationpb.Duration:
			return durationText(m)
		case *timestamppb.Timestamp:
			return m.AsTime().Format("2006-01-02 15:04:05.000 MST")
		case *actionstats.Files:
			return fmt.Sprintf("%d, %s", m.GetFiles(), text.Bytes(m.GetBytes()))
		}
		return ""
	}
	name := string(d.Name())
	switch d.Kind() {
	case protoreflect.Int64Kind, protoreflect.Int32Kind:
		if isSize(name) {
			return text.Bytes(v.Int())
		}
	case protoreflect.Uint64Kind:
		if isSize(name) {
			return text.Bytes(int64(v.Uint()))
		}
	case protoreflect.DoubleKind:
		if strings.HasSuffix(name, "_rate") {
			return percent(v.Float())
		}
		return fmt.Sprintf("%.4g", v.Float())
	}
	return fmt.Sprint(v.Interface())
}

// isSize reports whether a field counts bytes.
func isSize(name string) bool {
	return slices.Contains(strings.Split(name, "_"), "bytes") || strings.HasSuffix(name, "_size")
}

// sortFacts brings rows into the order of the schema; Range has none.
func sortFacts(rows []Fact, fields protoreflect.FieldDescriptors) {
	at := 0
	for i := range fields.Len() {
		name := strings.ReplaceAll(string(fields.Get(i).Name()), "_", " ")
		for j := at; j < len(rows); j++ {
			if rows[j].Name == name {
				rows[at], rows[j] = rows[j], rows[at]
				at++
				break
			}
		}
	}
}

// words turns InputRoot into "Input root".
func words(s string) string {
	var b strings.Builder
	for i, r := range s {
		next := i+1 < len(s) && unicode.IsLower(rune(s[i+1]))
		if i > 0 && unicode.IsUpper(r) && next {
			b.WriteByte(' ')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
