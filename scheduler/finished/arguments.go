package finished

import (
	"iter"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forerunner-build/forerunner/history"
)

// commandArgumentsField is the number of a Command's arguments (REv2).
const commandArgumentsField protowire.Number = 1

// tagBytes is more than two fields are larger than their values.
const tagBytes = 16

// arguments writes the first arguments of an encoded Command, of at most so many bytes and as many
// as the record has room for, and whether there are more. An invalid Command has none.
func (w *wire) arguments(command []byte, most int) {
	begin := len(w.b)
	if !w.argumentsOf(command, most) {
		w.b = w.b[:begin]
	}
}

// argumentsIn returns the arguments at the beginning of what arguments wrote.
func argumentsIn(b []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for len(b) > 0 {
			number, kind, n := protowire.ConsumeTag(b)
			if number != argumentsField || kind != protowire.BytesType {
				return
			}
			argument, m := protowire.ConsumeBytes(b[n:])
			if b = b[n+m:]; !yield(string(argument)) {
				return
			}
		}
	}
}

// argumentsOf does the work of arguments, up to where the Command is invalid. It reports whether the
// Command is valid.
func (w *wire) argumentsOf(command []byte, most int) bool {
	wasCut := int64(0)
	for len(command) > 0 {
		number, kind, n := protowire.ConsumeTag(command)
		if n < 0 {
			return false
		}
		command = command[n:]
		if number != commandArgumentsField || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, command); n < 0 {
				return false
			}
			command = command[n:]
			continue
		}
		argument, n := protowire.ConsumeBytes(command)
		if n < 0 || !utf8.Valid(argument) {
			return false
		}
		command = command[n:]
		if most -= len(argument) + 1; most < 0 || len(w.b)+len(argument)+tagBytes > history.MaxRecordBytes {
			most, wasCut = -1, 1
			continue
		}
		w.b = protowire.AppendBytes(protowire.AppendTag(w.b, argumentsField, protowire.BytesType), argument)
	}
	w.number(argumentsCutField, wasCut)
	return true
}
