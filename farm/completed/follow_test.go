package completed

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestFollowAgain: an error when a scheduler begins to wait is not the end of its following.
func TestFollowAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen, logs := observer.New(zap.WarnLevel)
		log := zap.New(seen)
		ctx, stop := context.WithCancel(t.Context())
		calls := 0
		again(ctx, log, func(ctx context.Context) error {
			if calls++; calls < 4 {
				return errors.New("the folder is in use")
			}
			stop()
			return ctx.Err()
		})
		if calls != 4 || logs.Len() != 1 {
			t.Errorf("%d calls, %d lines", calls, logs.Len())
		}
		again(t.Context(), log, func(context.Context) error { return nil }) // nothing to follow
	})
}
