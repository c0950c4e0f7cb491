package main

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm"
)

// TestSharedSettings: what is set of the farm counts for the scheduler's store and for the worker's.
func TestSharedSettings(t *testing.T) {
	l := &localFarm{}
	given := l.settings().Register(pflag.NewFlagSet("up", pflag.ContinueOnError))
	if err := given.Set("verify-every", "1m"); err != nil {
		t.Fatal(err)
	}
	l.share(t.TempDir(), zap.NewNop())
	if s, w := l.scheduler.VerifyEvery, l.worker.VerifyEvery; s != farm.VerifyEvery(time.Minute) || w != s {
		t.Errorf("verify_every is %v for the scheduler and %v for the worker", s, w)
	}
}
