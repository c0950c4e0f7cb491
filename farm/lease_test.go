package farm

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

func TestLeaseNeedsWhatIsShared(t *testing.T) {
	for want, s := range map[string]Scheduler{
		"--state":   {State: "bolt:/x", Storage: "grpc://h:1"},
		"--storage": {State: "redis://h:1", Storage: "dir:/x"},
		"HOST:PORT": {State: "redis://h", Storage: "grpcs://h:1"},
	} {
		s.Lease, s.Logger = "main", zap.NewNop()
		if err := s.Run(t.Context(), t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestFollowAgain: an error when a scheduler begins to wait is not the end of its following.
func TestFollowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, logs := observer.New(zap.WarnLevel)
		s := Scheduler{Logger: zap.New(seen)}
		ctx, stop := context.WithCancel(t.Context())
		calls := 0
		s.keepFollowing(ctx, func(ctx context.Context) error {
			if calls++; calls < 4 {
				return errors.New("the folder is in use")
			}
			stop()
			return ctx.Err()
		})
		if calls != 4 || logs.Len() != 1 {
			t.Errorf("%d calls, %d lines", calls, logs.Len())
		}
		s.keepFollowing(t.Context(), func(context.Context) error { return nil }) // nothing to follow
	})
}
