package fault

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	castree "github.com/forerunner-build/forerunner/cas/tree"
)

// TestStatus has a row for each fault: docs/ARCHITECTURE.md has the table for people.
func TestStatus(t *testing.T) {
	missing := &cas.MissingError{Digests: []digest.Digest{digest.Of(digest.SHA256, []byte("a"))}}
	for _, c := range []struct {
		err  error
		want codes.Code
	}{
		{Errorf(codes.DeadlineExceeded, "too slow"), codes.DeadlineExceeded},
		{Errorf(codes.InvalidArgument, "odd: %w", cas.ErrCorrupt), codes.InvalidArgument}, // an explicit code has priority
		{missing, codes.FailedPrecondition},
		{Errorf(codes.Internal, "read: %w", missing), codes.FailedPrecondition}, // but a client can mend this
		{castree.ErrInvalid, codes.InvalidArgument},
		{digest.ErrInvalid, codes.InvalidArgument},
		{cas.ErrCorrupt, codes.DataLoss},
		{cas.ErrNotFound, codes.FailedPrecondition},
		{cas.ErrNoSpace, codes.ResourceExhausted},
		{&cas.NeverFitsError{MaxBytes: 1}, codes.FailedPrecondition}, // a retry cannot help
		{cas.ErrUnwritable, codes.Unavailable},
		{status.Error(codes.PermissionDenied, "by storage"), codes.PermissionDenied},
		{errors.New("who knows"), codes.Internal},
	} {
		if got := Status(t.Context(), fmt.Errorf("run: %w", c.err)).Code(); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	var violations []*errdetails.PreconditionFailure_Violation
	for _, d := range Status(t.Context(), missing).Details() {
		violations = append(violations, d.(*errdetails.PreconditionFailure).GetViolations()...)
	}
	if len(violations) != 1 || violations[0].GetType() != "MISSING" || violations[0].GetSubject() != missing.Digests[0].BlobName() {
		t.Errorf("a client is told of %v", violations)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if got := Status(cancelled, missing).Code(); got != codes.Canceled {
		t.Errorf("of a cancelled action: %v", got)
	}
}

func TestIsUnreadable(t *testing.T) {
	for err, want := range map[error]bool{syscall.EIO: true, syscall.ENOTCONN: true, syscall.ENOMEM: true, syscall.ENOENT: false} {
		if got := IsUnreadable(fmt.Errorf("open: %w", err)); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}
