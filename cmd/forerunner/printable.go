package main

import (
	"bytes"
	"context"
	"io"
	"regexp"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/forerunner-build/forerunner/printable"
	"github.com/forerunner-build/forerunner/web/text"
)

// Clients choose names of targets, users, invocations and more freely. On an operator's terminal
// these names must not move the cursor, write the clipboard, or look like another line.

// escapes are the sequences with which programs colour text and move the cursor.
var escapes = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]")

// A printableWriter writes printable text. Each Write has whole characters.
type printableWriter struct{ io.Writer }

// Write implements io.Writer.
func (w printableWriter) Write(b []byte) (int, error) {
	_, err := io.Copy(w.Writer, bytes.NewReader([]byte(printable.Lines(string(b)))))
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// A printableConn is a connection whose answers name workers as patterns do. For tables, they have
// texts of one line, and name machines; JSON can encode any text.
type printableConn struct {
	grpc.ClientConnInterface
	json bool
}

// Invoke implements grpc.ClientConnInterface.
func (c printableConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	m, ok := reply.(proto.Message)
	switch {
	case !ok || err != nil:
	case c.json:
		change(m.ProtoReflect(), func(name protoreflect.Name, s string) string {
			if name == workerField {
				return text.Worker(s)
			}
			return s
		})
	default:
		clean(m.ProtoReflect())
	}
	return err
}

// workerField names the fields that have the key of a worker, or its name.
const workerField = "worker"

// pageToken names the field of an answer that is for the next call, not for people.
const pageToken = "next_page_token"

// argumentsField names the fields with the words of a command line, which printable.Command escapes.
const argumentsField = "arguments"

// clean has all texts of a message that are for people be on one line, and workers be machines.
func clean(m protoreflect.Message) {
	change(m, func(name protoreflect.Name, s string) string {
		switch name {
		case argumentsField:
			return s
		case workerField:
			s = text.Machine(s)
		}
		return printable.Name(s)
	})
}

// change replaces all texts of a message that are for people by what to returns for their fields.
func change(m protoreflect.Message, to func(protoreflect.Name, string) string) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Name() == pageToken:
		case field.IsMap():
			values := value.Map()
			values.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				v, isOther := changed(field.MapValue(), value, to)
				if k, isOtherKey := changed(field.MapKey(), key.Value(), to); isOtherKey {
					values.Clear(key)
					key, isOther = k.MapKey(), true
				}
				if isOther {
					values.Set(key, v)
				}
				return true
			})
		case field.IsList():
			values := value.List()
			for i := range values.Len() {
				if v, isOther := changed(field, values.Get(i), to); isOther {
					values.Set(i, v)
				}
			}
		default:
			if v, isOther := changed(field, value, to); isOther {
				m.Set(field, v)
			}
		}
		return true
	})
}

// changed returns another value for a text that must change, and changes a message in place.
func changed(field protoreflect.FieldDescriptor, value protoreflect.Value, to func(protoreflect.Name, string) string) (_ protoreflect.Value, isOther bool) {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		change(value.Message(), to)
	case protoreflect.StringKind:
		if s := to(field.Name(), value.String()); s != value.String() {
			return protoreflect.ValueOfString(s), true
		}
	}
	return value, false
}
