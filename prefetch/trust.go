package prefetch

// trust says how far a profile is believed, by what the action opens. It belongs to one goroutine.
type trust struct {
	profile *Profile // nil: nothing is known
	origin  Origin
	// Of the files that the action opened lately: all, and those that the profile did not have.
	all, strange int
}

// The window in which opened files count; then they count half.
const trustWindow = 64

// opened notes that the action opened the file with that path, and reports whether the profile has it.
func (t *trust) opened(h PathHash) (foreseen bool) {
	if t.profile == nil {
		return false
	}
	if t.all >= trustWindow {
		t.all, t.strange = t.all/2, t.strange/2
	}
	t.all++
	foreseen = t.profile.containsSmall(h)
	if !foreseen {
		t.strange++
	}
	return foreseen
}

// misfit reports whether the profile is about something else: what it foresees is not asked for
// until it is right again.
func (t *trust) misfit() bool { return t.all >= 8 && 4*t.strange >= 3*t.all }

// blind returns how many directories are fetched that the profile does not name.
func (t *trust) blind() int {
	switch {
	case t.profile == nil || t.origin == Coarse || t.strange >= 4 && 2*t.strange >= t.all:
		return maxBlind
	case t.strange > 0:
		return fewBlind
	}
	return 0
}
