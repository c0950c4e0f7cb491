package facts

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// shownPatterns limits the target patterns of a build in a list.
const shownPatterns = 3

// Build describes a build: its command and target patterns.
func Build(b *historypb.Build) string {
	patterns := b.GetPatterns()
	said := append([]string{cmp.Or(b.GetCommand(), "build")}, patterns[:min(len(patterns), shownPatterns)]...)
	if more := len(patterns) - shownPatterns; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, " ")
}

// BuildUser returns the user of a build: the authenticated one or, if there is none, the one in its
// events.
func BuildUser(known string, b *historypb.Build) string { return cmp.Or(known, b.GetLocalUser()) }

// silence is the time after the last event after which an unfinished build counts as abandoned.
const silence = 10 * time.Minute

// BuildGoesOn reports whether a build whose last event came at last may still send events.
func BuildGoesOn(b *historypb.Build, last time.Time) bool {
	return !b.GetEnded() && b.GetFinished() == nil && time.Since(last) < silence
}

// BuildOutcome is the short outcome of a build whose last event came at last.
func BuildOutcome(o historypb.Outcome, b *historypb.Build, last time.Time) string {
	switch o {
	case historypb.Outcome_OUTCOME_UNSPECIFIED:
		if BuildGoesOn(b, last) {
			return "goes on"
		}
		return "not known"
	case historypb.Outcome_FAILED:
		return strings.ToLower(strings.ReplaceAll(cmp.Or(b.GetExitName(), "failed"), "_", " "))
	}
	return OutcomeName(o)
}

// BuildCounts describes how many targets were built and how many tests passed; empty if unknown.
func BuildCounts(b *historypb.Build) (targets, tests string) {
	of := func(fine, bad int32, done string) string {
		switch {
		case fine+bad == 0:
			return ""
		case bad == 0:
			return fmt.Sprintf("%d %s", fine, done)
		}
		return fmt.Sprintf("%d %s, %d failed", fine, done, bad)
	}
	return of(b.GetTargetsBuilt(), b.GetTargetsFailed(), "built"), of(b.GetTestsPassed(), b.GetTestsFailed(), "passed")
}
