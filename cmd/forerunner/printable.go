package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Clients choose names of targets, users, invocations and more freely. On an operator's terminal
// these names must not move the cursor, write the clipboard, or look like another line.

// unprintable stands for a character that is not shown.
const unprintable = '\uFFFD'

// printable is text as terminals show it, in any number of lines.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			return r
		}
		return unprintable
	}, s)
}

// onOneLine is printable text in one line and one column.
func onOneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return unprintable
	}, s)
}

// inJSON writes the characters of a JSON text that are not shown as JSON can: all that is not shown
// is in its strings, but for line breaks.
func inJSON(text []byte) []byte {
	var b []byte
	for _, r := range string(text) {
		switch {
		case r == '\n' || unicode.IsGraphic(r):
			b = utf8.AppendRune(b, r)
		case r <= 0xffff:
			b = fmt.Appendf(b, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	return b
}

// A printableWriter writes printable text. Each Write has whole characters.
type printableWriter struct{ io.Writer }

// Write implements io.Writer.
func (w printableWriter) Write(b []byte) (int, error) {
	_, err := io.Copy(w.Writer, bytes.NewReader([]byte(printable(string(b)))))
	if err != nil {
		return 0, err
	}
	return len(b), nil
}

// A cleanConn is a connection whose answers have texts of one line, for tables. JSON can encode any
// text.
type cleanConn struct{ grpc.ClientConnInterface }

// Invoke implements grpc.ClientConnInterface.
func (c cleanConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	err := c.ClientConnInterface.Invoke(ctx, method, args, reply, opts...)
	if m, ok := reply.(proto.Message); ok && err == nil {
		clean(m.ProtoReflect())
	}
	return err
}

// pageToken names the field of an answer that is for the next call, not for people.
const pageToken = "next_page_token"

// clean has all texts of a message that are for people be on one line.
func clean(m protoreflect.Message) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Name() == pageToken:
		case field.IsMap():
			values := value.Map()
			values.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
				v, changed := cleaned(field.MapValue(), value)
				if k, other := cleaned(field.MapKey(), key.Value()); other {
					values.Clear(key)
					key, changed = k.MapKey(), true
				}
				if changed {
					values.Set(key, v)
				}
				return true
			})
		case field.IsList():
			values := value.List()
			for i := range values.Len() {
				if v, changed := cleaned(field, values.Get(i)); changed {
					values.Set(i, v)
				}
			}
		default:
			if v, changed := cleaned(field, value); changed {
				m.Set(field, v)
			}
		}
		return true
	})
}

// cleaned returns another value for a text that must change, and cleans a message in place.
func cleaned(field protoreflect.FieldDescriptor, value protoreflect.Value) (_ protoreflect.Value, changed bool) {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		clean(value.Message())
	case protoreflect.StringKind:
		if text := onOneLine(value.String()); text != value.String() {
			return protoreflect.ValueOfString(text), true
		}
	}
	return value, false
}
