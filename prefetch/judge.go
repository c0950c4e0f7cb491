package prefetch

import (
	"context"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/records/record"
)

// A Run is one that has ended.
type Run struct {
	// Local returns a Directory that is local. It waits only for the disk.
	Local func(digest.Digest) (*tree.Directory, bool)
	Root  digest.Digest       // of the input root
	Read  func(PathHash) bool // Recorder.Has
	// Failed: it may have ended before it read what a run that succeeds reads, and counts half.
	Failed bool
	// Forecast is that of the run's Race. Zero: there is none.
	Forecast Forecast
}

// A Verdict is what Judge found out about a run.
type Verdict struct {
	profiles *Profiles
	action   Action
	misled   bool // the run read little of what the exact record predicts
}

// Judge compares a run of a with the records that Find considers for it, and so decides whether Find
// uses them for the next run. A run that failed counts, too, unless the worker caused that. It
// may wait for the store, and writes only if a record is used from now on, or no longer.
func (p *Profiles) Judge(ctx context.Context, a Action, run Run) Verdict {
	v := Verdict{profiles: p, action: a}
	if !run.Read(RootHash) {
		return v // it was not watched
	}
	if k, ok := a.exactKey(); ok {
		used, misled := p.judge(ctx, k, p.exact, run)
		if v.misled = misled; used {
			return v
		}
	}
	if k, ok := a.coarseKey(); ok {
		p.judge(ctx, k, p.coarse, run)
	}
	return v
}

// judge compares a run with the record under k, and reports whether that was used, and whether the
// run read little of it.
func (p *Profiles) judge(ctx context.Context, k record.Key, r rules, run Run) (used, misled bool) {
	e := p.look(ctx, k, r)
	known := e.known.Load()
	profile, used := known.profile(), known.trusted(r) != nil
	if profile == nil {
		return false, false
	}
	right, ok := run.share(profile)
	if !ok {
		return used, false
	}
	misled = right <= r.score.Poor
	if run.Failed {
		r.score.Latest /= 2
	}
	e.mu.Lock()
	known = e.known.Load()
	before, now := known.score, known.score.After(right, r.score)
	if e.misled = nil; misled {
		e.misled = &before
	}
	e.known.Store(known.withScore(now))
	turned := r.score.Trusts(before) != r.score.Trusts(now)
	if turned {
		e.changes++
	}
	e.mu.Unlock()
	if turned {
		p.write(ctx, e)
	}
	return used, misled
}

// costOfFile is how many bytes a file counts in addition to its own.
const costOfFile = 4 << 10

// share returns which share of the predicted bytes the run read. It is false if nothing was
// predicted, as far as the directories are local. Of a very large root the first levels count.
func (r Run) share(p *Profile) (right float64, ok bool) {
	var all float64
	files := 0
	add := func(path PathHash, size int64) {
		files++
		bytes := costOfFile + float64(size)
		all += bytes
		if r.Read(path) {
			right += bytes
		}
	}
	if r.Forecast.isOf(p) {
		for _, f := range r.Forecast.files {
			add(f.path, f.bytes)
		}
		return right / max(all, 1), files > 0
	}
	t := newTour(r.Local, r.Root)
	for at, dir := range t.all(anywhere) {
		if files >= maxFiles {
			break
		}
		for i := range dir.Len() {
			h := at.hash.Child(dir.Name(i))
			switch {
			case dir.Kind(i) == tree.Symlink || !p.predicts(dir, i, h):
			case dir.Kind(i) == tree.Dir:
				t.enter(dir.At(i).Digest, h)
			default:
				add(h, dir.At(i).Digest.SizeBytes())
			}
		}
	}
	return right / max(all, 1), files > 0
}

// A Forecast has the files of an input tree that a profile predicts. Its zero value has those of no
// profile.
type Forecast struct {
	profile *Profile
	files   []predicted
}

// predicted is a file of a Forecast.
type predicted struct {
	path  PathHash
	bytes int64
}

// isOf reports whether the forecast is that of p, or of a profile that predicts the same.
func (f Forecast) isOf(p *Profile) bool {
	return f.profile != nil && f.profile.filter == p.filter && f.profile.cheap == p.cheap && f.profile.history == p.history
}
