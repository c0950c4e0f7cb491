package text

import (
	"testing"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/proto/live"
)

func TestHindrance(t *testing.T) {
	full := &live.Report{Resting: "the disk is full"}
	for _, c := range []struct {
		worker *admin.Worker
		want   string
	}{
		{&admin.Worker{State: admin.Worker_IDLE}, ""},
		{&admin.Worker{State: admin.Worker_RESTING}, ""}, // the worker shuts down, or is Buildbarn's
		{&admin.Worker{State: admin.Worker_RESTING, Report: full}, "takes no actions until it can run them: the disk is full"},
		{&admin.Worker{State: admin.Worker_EXECUTING, Report: full}, ""}, // the report is some seconds old
		{
			&admin.Worker{State: admin.Worker_SUSPENDED, FailedInARow: 5, FailedLately: 7},
			"suspended, tried with one action: 5 actions in a row failed, 7 of the last 16, and those of other workers did not",
		},
	} {
		if got := Hindrance(c.worker); got != c.want {
			t.Errorf("%v: %q, want %q", c.worker, got, c.want)
		}
	}
}
