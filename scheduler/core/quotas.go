package core

import (
	"errors"

	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// A QuotaKey says whose quota of what.
type QuotaKey struct{ Cohort, Instance string }

// A QuotaRecord is a quota in force.
type QuotaRecord struct {
	QuotaKey
	quota.Quota
}

// Errors of PutQuota.
var (
	// ErrNoCohort says that there is no cohort of that name.
	ErrNoCohort = errors.New("no such cohort")
	// ErrBadQuota says that a quota makes no sense.
	ErrBadQuota = errors.New("bad quota")
	// ErrTooManyQuotas says that a cohort has MaxQuotas.
	ErrTooManyQuotas = errors.New("too many quotas")
)

// MaxQuotas bounds the quotas of a cohort.
const MaxQuotas = 10_000

// A QuotaUse is what an instance has of a cohort, what it uses now, and how many actions
// it has waiting there.
type QuotaUse struct {
	QuotaKey
	quota.Use
	Waiting int
}
