package prefetch

import (
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
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

// predicts reports whether entry i of dir, at the path with hash h, is likely to be read: p is less
// sure of some paths, and they count if they are directories or small files.
func (p *Profile) predicts(dir *tree.Directory, i int, h PathHash) bool {
	if !p.containsSmall(h) || !p.history.has(h) {
		return false
	}
	return dir.Kind(i) == tree.Dir || dir.At(i).Digest.SizeBytes() <= smallBytes || p.Contains(h)
}

// A Forecast has the files of an input tree that a profile predicts. Its zero value has those of no
// profile.
type Forecast struct {
	profile *Profile
	files   []forecast
}

type forecast struct {
	path  PathHash
	bytes int64
}

// isOf reports whether the forecast is that of p, or of a profile that predicts the same.
func (f Forecast) isOf(p *Profile) bool {
	return f.profile != nil && f.profile.filter == p.filter && f.profile.small == p.small && f.profile.history == p.history
}
