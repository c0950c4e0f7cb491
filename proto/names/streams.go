package names

import (
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A stream of output is a resource of ByteStream: StreamPrefix, the name of the operation, and
// one of the suffixes. No blob has such a name.
const (
	StreamPrefix = "streams/"
	StdoutSuffix = "/stdout"
	StderrSuffix = "/stderr"
)

// The ErrorInfo at the end of a stream of an invalid run.
const (
	errorDomain       = "forerunner"
	reasonStartedOver = "STARTED_OVER"
)

// ParseStream parses the name of a stream of output; ok is false for other names.
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

// ErrStartedOver ends a stream of output of an invalid run, because the action started again. A
// reader finds the output of the next run from offset 0 on.
func ErrStartedOver() error {
	st := status.New(codes.Aborted, "the action was started over: its earlier output does not count")
	detailed, err := st.WithDetails(&errdetails.ErrorInfo{Reason: reasonStartedOver, Domain: errorDomain})
	if err != nil {
		return st.Err()
	}
	return detailed.Err()
}

// IsStartedOver reports whether err is ErrStartedOver, from here or over a connection.
func IsStartedOver(err error) bool {
	for _, detail := range status.Convert(err).Details() {
		info, ok := detail.(*errdetails.ErrorInfo)
		if ok && info.GetReason() == reasonStartedOver && info.GetDomain() == errorDomain {
			return true
		}
	}
	return false
}
