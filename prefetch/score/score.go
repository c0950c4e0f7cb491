package score

import "math"

// A Score is how well a profile predicted. The zero value is that of a profile that was never
// compared with a run.
type Score struct {
	known bool
	right float64 // share of the predicted bytes that were read, from 0 to 1
}

// Rules say how scores of a kind of profiles are made and read.
type Rules struct {
	// Latest is the weight of the latest run, above 0, up to 1: that of all others is the rest.
	Latest float64
	// Poor is the largest share of right bytes with which a profile costs more than it brings.
	Poor float64
}

// The score of a changed profile whose predecessor was right for long, and the least score of such a
// predecessor. They are apart, so that an action that reads something else each time is forgiven
// once.
const (
	fresh  = 5.0 / 8
	proven = 3.0 / 4
)

// perMille is how a record has a score.
const perMille = 1000

// Parse returns the score in a record, the zero Score if there is none or it is out of range.
func Parse(rightPerMille *uint32) Score {
	if rightPerMille == nil || *rightPerMille > perMille {
		return Score{}
	}
	return Score{true, float64(*rightPerMille) / perMille}
}

// PerMille returns s as a record has it; nil if nothing is known.
func (s Score) PerMille() *uint32 {
	if !s.known {
		return nil
	}
	n := uint32(math.Round(s.right * perMille))
	return &n
}

// Known reports whether there was a run.
func (s Score) Known() bool { return s.known }

// After returns the score after a run that read that share of the predicted bytes, from 0 to 1.
func (s Score) After(right float64, r Rules) Score {
	if !s.known {
		return Score{true, right}
	}
	return Score{true, s.right + r.Latest*(right-s.right)}
}

// Trusts reports whether to use a profile with this score: one that was never compared, too.
func (r Rules) Trusts(s Score) bool { return !s.known || s.right > r.Poor }

// Renewed returns the score of a profile that replaces one which has just been wrong. before is the
// score of that one before, and now the one with that run.
func Renewed(before, now Score) Score {
	if !before.known || before.right >= proven {
		return Score{true, fresh}
	}
	return now
}
