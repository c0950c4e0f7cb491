package facts

import (
	"cmp"
	"fmt"
	"strings"

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

// BuildOutcome is the short outcome of a build.
func BuildOutcome(o historypb.Outcome, b *historypb.Build) string {
	switch o {
	case historypb.Outcome_OUTCOME_UNSPECIFIED:
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
