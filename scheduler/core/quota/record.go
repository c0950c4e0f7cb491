package quota

import (
	"errors"
)

// A Key says whose quota of what.
type Key struct{ Cohort, Instance string }

// A Record is a quota in force.
type Record struct {
	Key
	Quota
}

// Why a quota is refused.
var (
	// ErrNoCohort says that there is no cohort of that name.
	ErrNoCohort = errors.New("no such cohort")
	// ErrBad says that a quota makes no sense.
	ErrBad = errors.New("bad quota")
	// ErrTooMany says that a cohort has MaxOfCohort.
	ErrTooMany = errors.New("too many quotas")
)

// MaxOfCohort bounds the quotas of a cohort.
const MaxOfCohort = 10_000
