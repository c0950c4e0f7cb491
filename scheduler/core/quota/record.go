package quota

import (
	"errors"
)

// A Key is the instance and the cohort of a quota.
type Key struct{ Cohort, Instance string }

// A Record is an active quota.
type Record struct {
	Key
	Quota
}

// Why a quota is refused.
var (
	// ErrNoCohort: no cohort has that name.
	ErrNoCohort = errors.New("no such cohort")
	// ErrBad: a quota is inconsistent.
	ErrBad = errors.New("bad quota")
	// ErrTooMany: a cohort has MaxOfCohort quotas.
	ErrTooMany = errors.New("too many quotas")
)

// MaxOfCohort bounds the quotas of a cohort.
const MaxOfCohort = 10_000
