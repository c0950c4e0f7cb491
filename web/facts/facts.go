package facts

import (
	"fmt"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	// Registers the metadata messages of workers.
	"github.com/forerunner-build/forerunner/proto/actionstats"
	_ "github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/web/text"
)

// A Table has the fields of one message as text.
type Table struct {
	Title string
	Rows  []Row
}

// A Row is one field of a message.
type Row struct{ Name, Value string }

// Told formats a worker's report of a completed action: its stages, and the known messages in its
// metadata.
func Told(m *repb.ExecutedActionMetadata) []Table {
	stages := Table{Title: "Stages"}
	for _, s := range Spans(m) {
		stages.Rows = append(stages.Rows, Row{s.Name, s.Took.Round(time.Microsecond).String()})
	}
	if len(stages.Rows) == 0 {
		return Packed(m.GetAuxiliaryMetadata())
	}
	return append([]Table{stages}, Packed(m.GetAuxiliaryMetadata())...)
}

// DropUnknown removes metadata messages of unknown types, which other workers send.
func DropUnknown(m *repb.ExecutedActionMetadata) {
	if m != nil {
		m.AuxiliaryMetadata = slices.DeleteFunc(m.AuxiliaryMetadata, func(packed *anypb.Any) bool {
			_, err := packed.UnmarshalNew()
			return err != nil
		})
	}
}

// Packed formats the messages of known types in list.
func Packed(list []*anypb.Any) []Table {
	var all []Table
	for _, packed := range list {
		m, err := packed.UnmarshalNew()
		if err != nil {
			continue // a type of another worker
		}
		if f := Of(m); len(f.Rows) > 0 {
			all = append(all, f)
		}
	}
	return all
}

// Of formats a message field by field, in the order of its schema. It omits lists and unset fields.
func Of(m proto.Message) Table {
	f := Table{Title: text.Words(string(m.ProtoReflect().Descriptor().Name()))}
	m.ProtoReflect().Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if value := valueText(d, v); value != "" {
			f.Rows = append(f.Rows, Row{strings.ReplaceAll(string(d.Name()), "_", " "), value})
		}
		return true
	})
	sortRows(f.Rows, m.ProtoReflect().Descriptor().Fields())
	return f
}

// valueText formats a field that is neither a list nor a message with fields of its own.
func valueText(d protoreflect.FieldDescriptor, v protoreflect.Value) string {
	if d.IsList() || d.IsMap() {
		return ""
	}
	if d.Message() != nil {
		var m proto.Message = v.Message().Interface()
		switch m := m.(type) {
		case *durationpb.Duration:
			return text.Duration(m)
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
		if name == "code" { // a google.rpc.Code
			return codes.Code(v.Int()).String()
		}
	case protoreflect.Uint64Kind:
		if isSize(name) {
			return text.Bytes(int64(v.Uint()))
		}
	case protoreflect.EnumKind:
		if value := d.Enum().Values().ByNumber(v.Enum()); value != nil {
			return strings.ToLower(strings.ReplaceAll(string(value.Name()), "_", " "))
		}
	case protoreflect.DoubleKind:
		if strings.HasSuffix(name, "_rate") {
			return text.Percent(v.Float())
		}
		return fmt.Sprintf("%.4g", v.Float())
	}
	return fmt.Sprint(v.Interface())
}

// isSize reports whether the field of that name counts bytes.
func isSize(name string) bool {
	return slices.Contains(strings.Split(name, "_"), "bytes") || strings.HasSuffix(name, "_size")
}

// sortRows sorts rows in the order of the schema, because Range yields them in any order.
func sortRows(rows []Row, fields protoreflect.FieldDescriptors) {
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
