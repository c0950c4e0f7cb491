package prefetch

import (
	"context"
	"strings"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// The bounds of reading ahead by nearness.
const (
	// nearFiles and nearBytes bound what is fetched ahead in one directory, and
	// nearFileBytes what counts as a small file.
	nearFiles     = 256
	nearBytes     = 1 << 20
	nearFileBytes = 128 << 10
	// maxOpened bounds the reads that wait to be looked at, and maxNear the
	// directories in which it reads ahead.
	maxOpened = 4096
	maxNear   = 1 << 14
	// Of the directories read ahead in, those before the last nearYoung are judged,
	// at most nearJudged of them, once so many files were fetched there.
	nearYoung  = 8
	nearJudged = 64
	nearLeast  = 64
	// In percent of the files fetched: with less used it is given up, with more it
	// begins at the first file, with yet more when the directory is looked at.
	nearTooLittle = 30
	nearGood      = 70
	nearVeryGood  = 90
)

// nearby decides in which directories to read ahead.
type nearby struct {
	wake chan struct{} // one place

	mu       sync.Mutex
	opened   []opened                // guarded by mu; to be looked at
	dirs     map[string]*directory   // guarded by mu; by path
	ahead    []*directory            // guarded by mu; those read ahead in, in their order
	foretold map[PathHash]*directory // guarded by mu; files that were fetched ahead, not yet read
	seen     map[PathHash]struct{}   // guarded by mu; files that were read
	after    int                     // guarded by mu; how many opened files it takes
	off      bool                    // guarded by mu
}

type opened struct {
	path string
	kind tree.Kind
}

// A directory is one in which files are read. nearby.mu guards it.
type directory struct {
	opens         int
	done          bool // it has been read ahead in
	fetched, used int  // files
}

func newNearby() *nearby {
	return &nearby{
		wake: make(chan struct{}, 1), dirs: map[string]*directory{}, after: 2,
		foretold: map[PathHash]*directory{}, seen: map[PathHash]struct{}{},
	}
}

// Opened says that the action has read path for the first time. It does not wait,
// and is made to be called from OnFirstRead of vfs. Without a Profile the small
// files of a directory of which some have been read are fetched ahead: from the
// second one on, or sooner while nearly all that was fetched so is used, and not at
// all any more once too little of it is. With a Profile it does nothing.
func (r *Race) Opened(path string, k tree.Kind) {
	n := r.nearby
	if n == nil || k == tree.Symlink {
		return
	}
	n.mu.Lock()
	if !n.off && len(n.opened) < maxOpened {
		n.opened = append(n.opened, opened{path, k})
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// readAhead looks at what was opened, until ctx ends or it is given up.
func (r *Race) readAhead(ctx context.Context) {
	for {
		select {
		case <-r.nearby.wake:
		case <-ctx.Done():
			return
		}
		paths, off := r.nearby.take()
		for _, path := range paths {
			if found := r.near(path); found != nil {
				r.add(found)
			}
		}
		if off {
			r.mu.Lock()
			r.stats.NearbyOff = true
			r.mu.Unlock()
			r.queue.drop()
			return
		}
	}
}

// take notes what was opened, and returns the directories to read ahead in.
func (n *nearby) take() (paths []string, off bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.opened {
		path := o.path
		if o.kind == tree.File {
			n.usedLocked(HashPath(o.path))
			path, _ = parentOf(o.path)
		}
		d := n.dirs[path]
		if d == nil {
			if len(n.dirs) >= maxNear {
				continue
			}
			d = &directory{}
			n.dirs[path] = d
		}
		if o.kind == tree.File {
			d.opens++
		}
		if !d.done && d.opens >= n.after {
			d.done = true
			n.ahead = append(n.ahead, d)
			paths = append(paths, path)
			n.judgeLocked()
		}
	}
	n.opened = n.opened[:0]
	return paths, n.off
}

func (n *nearby) usedLocked(h PathHash) {
	n.seen[h] = struct{}{}
	if d := n.foretold[h]; d != nil {
		delete(n.foretold, h)
		d.used++
	}
}

// judgeLocked decides from what has come of it so far how to go on.
func (n *nearby) judgeLocked() {
	old := n.ahead[:max(len(n.ahead)-nearYoung, 0)]
	old = old[max(len(old)-nearJudged, 0):]
	fetched, used := 0, 0
	for _, d := range old {
		fetched += d.fetched
		used += d.used
	}
	if fetched < nearLeast {
		return
	}
	switch share := used * 100 / fetched; {
	case share < nearTooLittle:
		n.off = true
	case share < nearGood:
		n.after = 2
	case share < nearVeryGood:
		n.after = 1
	default:
		n.after = 0
	}
}

// brought notes what has been fetched of a call for batch.
func (n *nearby) brought(batch []file, brought []digest.Digest) {
	came := make(map[digest.Digest]struct{}, len(brought))
	for _, d := range brought {
		came[d] = struct{}{}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range batch {
		if _, ok := came[f.digest]; !ok {
			continue
		}
		delete(came, f.digest) // it counts once
		f.near.fetched++
		if _, read := n.seen[f.hash]; read {
			f.near.used++
		} else {
			n.foretold[f.hash] = f.near
		}
	}
}

// near returns the files to be read ahead in the directory at path.
func (r *Race) near(path string) []file {
	dir, ok := r.source.LocalDirectory(r.root)
	for name := range strings.SplitSeq(path, "/") {
		if !ok || path == "" {
			break
		}
		e, found := dir.Find(name)
		if ok = found && e.Kind == tree.Dir; ok {
			dir, ok = r.source.LocalDirectory(e.Digest)
		}
	}
	if !ok {
		return nil
	}
	r.nearby.mu.Lock()
	near := r.nearby.dirs[path]
	r.nearby.mu.Unlock()
	var found []file
	left := int64(nearBytes)
	at := HashPath(path)
	for i := range dir.Len() {
		if dir.Kind(i) != tree.File {
			continue
		}
		e := dir.At(i)
		if e.Digest.SizeBytes() > nearFileBytes || e.Digest.SizeBytes() > left {
			continue
		}
		left -= e.Digest.SizeBytes()
		found = append(found, file{digest: e.Digest, hash: at.Child(e.Name), near: near})
		if len(found) == nearFiles {
			break
		}
	}
	return found
}
