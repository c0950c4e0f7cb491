package names

import "strings"

// A stream of output is a resource of ByteStream: StreamPrefix, the name of the operation, and
// one of the suffixes. No blob has such a name.
const (
	StreamPrefix = "streams/"
	StdoutSuffix = "/stdout"
	StderrSuffix = "/stderr"
)

// ParseStream takes the name of a stream of output apart; ok is false for what is none.
func ParseStream(resource string) (operation string, stderr, ok bool) {
	rest, ok := strings.CutPrefix(resource, StreamPrefix)
	if !ok {
		return "", false, false
	}
	if operation, ok = strings.CutSuffix(rest, StderrSuffix); ok {
		return operation, true, true
	}
	operation, ok = strings.CutSuffix(rest, StdoutSuffix)
	return operation, false, ok
}
