package quota

import (
	"errors"
)

// A Key names a quota: of which instance and cohort.
type Key struct{ Cohort, Instance string }

// A Record is a quota in force.
type Record struct {
	Key
	Quota
}

// Why a quota is refused.
var (
	// ErrNoCohort: there is no cohort of that name.
	ErrNoCohort = errors.New("no such cohort")
	// ErrBad: a quota is inconsistent.
	ErrBad = errors.New("bad quota")
	// ErrTooMany: a cohort has MaxOfCohort.
	ErrTooMany = errors.New("too many quotas")
)

// MaxOfCohort bounds the quotas of a cohort.
const MaxOfCohort = 10_000
