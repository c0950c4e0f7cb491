package finished

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// argumentsField is the number of a Command's arguments (REv2).
const argumentsField protowire.Number = 1

// arguments read the command line of a Command, without what else it has. The memory is reused.
type arguments struct {
	bytes []byte
	ends  []int
	list  []string
}

// of returns the first arguments of an encoded Command, of at most so many bytes, and whether there
// are more. They are valid until the next call. An invalid Command has none.
func (a *arguments) of(command []byte, most int) (first []string, wasCut bool) {
	a.bytes, a.ends, a.list = a.bytes[:0], a.ends[:0], a.list[:0]
	for len(command) > 0 {
		number, kind, n := protowire.ConsumeTag(command)
		if n < 0 {
			return nil, false
		}
		command = command[n:]
		if number != argumentsField || kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(number, kind, command); n < 0 {
				return nil, false
			}
			command = command[n:]
			continue
		}
		argument, n := protowire.ConsumeBytes(command)
		if n < 0 || !utf8.Valid(argument) {
			return nil, false
		}
		command = command[n:]
		if most -= len(argument) + 1; most < 0 {
			wasCut = true // and most stays below 0
			continue
		}
		a.bytes = append(a.bytes, argument...)
		a.ends = append(a.ends, len(a.bytes))
	}
	text, from := string(a.bytes), 0
	for _, end := range a.ends {
		a.list = append(a.list, text[from:end])
		from = end
	}
	return a.list, wasCut
}
