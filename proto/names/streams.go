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

// What ErrorInfo says at the end of a stream whose run does not count.
const (
	errorDomain       = "forerunner"
	reasonStartedOver = "STARTED_OVER"
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

// ErrStartedOver ends a stream of output of a run that does not count, because the action was started over. A
// reader finds what the next run prints from offset 0 on.
func ErrStartedOver() error {
	st := status.New(codes.Aborted, "the action was started over: what it printed before does not count")
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
