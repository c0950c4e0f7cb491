package names

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestParseStream(t *testing.T) {
	for resource, want := range map[string]struct {
		operation  string
		stderr, ok bool
	}{
		StreamPrefix + "operations/x" + StdoutSuffix: {"operations/x", false, true},
		StreamPrefix + "operations/x" + StderrSuffix: {"operations/x", true, true},
		"streams/x":                          {"x", false, false},
		"streams/x/stdout/y":                 {"x/stdout/y", false, false},
		"a/streams/x/stdout":                 {"", false, false},
		"blobs/" + "e3b0c44298fc1c149afb/42": {"", false, false},
		"":                                   {"", false, false},
	} {
		operation, stderr, ok := ParseStream(resource)
		if ok != want.ok || ok && (operation != want.operation || stderr != want.stderr) {
			t.Errorf("%q: operation %q, stderr %v, %v", resource, operation, stderr, ok)
		}
	}
}

func TestStartedOver(t *testing.T) {
	over := ErrStartedOver()
	if status.Code(over) != codes.Aborted {
		t.Errorf("%v is no ABORTED", over)
	}
	for _, err := range []error{nil, errors.New("broken"), status.Error(codes.Aborted, status.Convert(over).Message())} {
		if IsStartedOver(err) {
			t.Errorf("%v counts as started over", err)
		}
	}
	for _, err := range []error{over, fmt.Errorf("read: %w", over), status.FromProto(status.Convert(over).Proto()).Err()} {
		if !IsStartedOver(err) {
			t.Errorf("%v does not count as started over", err)
		}
	}
}
