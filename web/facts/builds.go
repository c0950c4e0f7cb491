package facts

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// shownPatterns are how many patterns of a build a line has room for.
const shownPatterns = 3

// Build is the description of a build: its command and patterns.
func Build(b *historypb.Build) string {
	patterns := b.GetPatterns()
	said := append([]string{cmp.Or(b.GetCommand(), "build")}, patterns[:min(len(patterns), shownPatterns)]...)
	if more := len(patterns) - shownPatterns; more > 0 {
		said = append(said, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(said, " ")
}

// BuildUser is the user of a build: the authenticated one, or else the one in its events.
func BuildUser(known string, b *historypb.Build) string { return cmp.Or(known, b.GetLocalUser()) }

// silence is how long without events a build counts as unfinished.
const silence = 10 * time.Minute

// BuildGoesOn reports whether more may come of a build of which something came last at a time.
func BuildGoesOn(b *historypb.Build, last time.Time) bool {
	return !b.GetEnded() && b.GetFinished() == nil && time.Since(last) < silence
}

// BuildOutcome is the short outcome of a build of which something came last at a time.
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

// BuildCounts is how many targets were built, and how many tests passed; empty: none known.
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
