package prefetch

import (
	"math"
	"sync"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// Figures has the results of prefetching for the input files of a command. Files with the same
// content count once, as they were when the first was opened. Empty files and directories do not
// count. docs/RUNNING_AHEAD.md has the definitions.
type Figures struct {
	Foreseen Amount // prefetched, and complete before the command opened them
	Late     Amount // still arriving when the command opened them, for any reason
	Missed   Amount // fetched because the command opened it
	Local    Amount // in the store, but not prefetched for this command
	Unused   Amount // prefetched, but not opened, or evicted before that
}

// Files returns the total of the files that the command opened.
func (f Figures) Files() (all Amount) {
	for _, a := range []Amount{f.Foreseen, f.Late, f.Missed, f.Local} {
		all = all.plus(a)
	}
	return all
}

// HitRate returns the share of Foreseen in all files that were not local, from 0 to 1; false if
// there were none.
func (f Figures) HitRate() (rate float64, ok bool) {
	fetched := f.Foreseen.Files + f.Late.Files + f.Missed.Files
	if fetched == 0 {
		return 0, false
	}
	return float64(f.Foreseen.Files) / float64(fetched), true
}

// A Tally records where blobs were when a command opened files. Its zero value is ready for use,
// and its methods may be called concurrently. It stores at most about a million blobs.
type Tally struct {
	mu    sync.Mutex
	first map[digest.Digest]met // guarded by mu
}

// met is where a blob was when it was first opened.
type met struct {
	was cas.Presence
	// unseen: its opening was not seen, as it was local.
	unseen bool
}

// Opened records where a blob was when the command opened a file with it.
func (t *Tally) Opened(d digest.Digest, was cas.Presence) { t.note(d, met{was: was}) }

// Used records that the command has read a blob, or is about to. If Opened was not called, the blob
// was local and the kernel reads it without the worker.
func (t *Tally) Used(d digest.Digest) { t.note(d, met{unseen: true}) }

func (t *Tally) note(d digest.Digest, m met) {
	t.mu.Lock()
	defer t.mu.Unlock()
	had, again := t.first[d]
	if d.IsEmptyBlob() || again && !had.unseen || !again && len(t.first) == maxRecorded {
		return
	}
	if t.first == nil {
		t.first = map[digest.Digest]met{}
	}
	t.first[d] = m
}

// Figures computes the figures from the tally and the prefetched blobs.
func (t *Tally) Figures(prefetched []digest.Digest) (f Figures) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ahead := make(map[digest.Digest]struct{}, len(prefetched))
	for _, d := range digest.Distinct(prefetched) {
		ahead[d] = struct{}{}
		if m, opened := t.first[d]; !opened || m.was == cas.Absent {
			f.Unused.add(d)
		}
	}
	for d, m := range t.first {
		_, foreseen := ahead[d]
		switch {
		case m.was == cas.OnItsWay:
			f.Late.add(d)
		case m.was == cas.Absent:
			f.Missed.add(d)
		case foreseen:
			f.Foreseen.add(d)
		default:
			f.Local.add(d)
		}
	}
	return f
}

// An Amount is a number of blobs and their total size.
type Amount struct{ Files, Bytes int64 }

// plus saturates: a tree that contains one folder often enough has more files than can be counted.
func (a Amount) plus(o Amount) Amount {
	return Amount{saturated(a.Files, o.Files), saturated(a.Bytes, o.Bytes)}
}

func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// add counts d. Anybody can claim a size, so the sum ends at the largest number.
func (a *Amount) add(d digest.Digest) {
	*a = a.plus(Amount{1, d.SizeBytes()})
}

// Stats count the work of a Race. Files do not count as fetched if they were local, or if a waiting
// caller fetched them.
type Stats struct {
	Foreseen    Amount // wanted files, local or not, once per path
	Files       Amount // prefetched files
	Directories Amount // prefetched Directory messages
	// NearbyOff: prefetching of nearby files was stopped, because too few were used.
	NearbyOff bool
}
