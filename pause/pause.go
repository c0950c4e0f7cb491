package pause

import (
	"context"
	"time"
)

// For returns after d, or, with the error of ctx, when that ends. It returns at once if d is not
// above 0.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
