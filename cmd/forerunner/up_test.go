package main

import (
	"errors"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/flags"
)

// TestSharedSettings: settings of the farm apply to the stores of both scheduler and worker.
func TestSharedSettings(t *testing.T) {
	l := &localFarm{}
	given := l.settings().Register(pflag.NewFlagSet("up", pflag.ContinueOnError))
	if err := errors.Join(given.Set("verify-every", "1m"), given.Set("spread-folders", "false")); err != nil {
		t.Fatal(err)
	}
	l.worker.Disk.SpreadFolders = true // as where a worker is alone
	l.share(t.TempDir(), zap.NewNop())
	if s, w := l.scheduler.Disk.VerifyEvery, l.worker.Disk.VerifyEvery; s != flags.VerifyEvery(time.Minute) || w != s {
		t.Errorf("verify_every is %v for the scheduler and %v for the worker", s, w)
	}
	if l.scheduler.Disk.SpreadFolders || l.worker.Disk.SpreadFolders {
		t.Error("spread_folders is not the worker's")
	}
}
