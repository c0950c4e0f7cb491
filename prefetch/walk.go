package prefetch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// The limits of directories that are fetched although no Profile has them: with a profile that is
// sometimes wrong, and without one.
const (
	fewBlind = 256
	maxBlind = 4096

	maxBlindBytes = 64 << 20 // of their messages
	// maxTrees is how many trees are fetched at once at most, and treeTime the time for one.
	maxTrees = 4
	treeTime = 2 * time.Second
	// maxCalls limits the calls of a walk that are under way.
	maxCalls = maxDirectoryCalls + 2*maxTrees
)

// filesAtOnce is how many files are found before the first of them are asked for, if they are all
// local: so many are put in order.
const filesAtOnce = 4096

// A visit is a directory that is to be looked at.
type visit struct {
	directoryAt
	asked bool // it was asked for; if it is not here now, it will not come
}

// A walk goes through the input tree, as far as the profile does: local directories at once, others
// level by level, each in as few calls as possible. It belongs to one goroutine.
type walk struct {
	race        *Race
	profile     *Profile // nil: all directories are worth a look, and no file is
	todo        []visit  // to be read, the next one last
	missing     []visit  // to be requested
	found       []file
	directories int // found so far, at most maxDirectories
	files       int // found so far, at most maxFiles
	compared    int // entries that were looked at, about maxCompared at most
	// first are the files of foreseeFirst that were not found so far.
	first map[PathHash]digest.Digest
	// forecast has all files that the profile predicts, unless it is partial.
	forecast []predicted
	partial  bool
	left     int          // directories that may yet be asked for
	trees    int          // directories that trees may bring; 0: they were asked for
	blind    int64        // bytes of those that were asked for, or will be
	calls    int          // under way
	came     chan []visit // requests of the calls; has room for all of them
}

// walk goes through the tree as far as p goes, or through all of it, and asks for so many
// directories at most.
func (r *Race) walk(ctx context.Context, p *Profile, first map[PathHash]digest.Digest, atMost int) {
	if p == nil {
		defer r.mentions.Settled()
	}
	w := walk{race: r, profile: p, first: first, left: atMost, trees: atMost, came: make(chan []visit, maxCalls)}
	if p != nil {
		w.trees = fewBlind
	}
	w.todo = append(w.todo, visit{directoryAt: directoryAt{digest: r.root, hash: RootHash}})
	for {
		w.descend(ctx)
		w.hand()
		for len(w.missing) > 0 && w.calls < maxCalls-maxTrees {
			w.ask(ctx)
		}
		if w.calls == 0 {
			w.conclude(ctx)
			if len(w.first) > 0 && ctx.Err() == nil {
				r.queue.forget(slices.Collect(maps.Keys(w.first)))
			}
			return
		}
		select {
		case visits := <-w.came:
			w.calls--
			w.todo = append(w.todo, visits...)
		case <-ctx.Done():
			return
		}
	}
}

// descend reads all local directories, and collects the missing ones.
func (w *walk) descend(ctx context.Context) {
	for len(w.todo) > 0 && ctx.Err() == nil {
		at := w.todo[len(w.todo)-1]
		w.todo = w.todo[:len(w.todo)-1]
		if dir, ok := w.race.source.LocalDirectory(at.digest); ok {
			w.look(dir, at.hash)
			if len(w.found) >= filesAtOnce {
				w.hand()
			}
		} else if size := at.digest.SizeBytes(); !at.asked && (w.profile != nil || w.blind+size <= maxBlindBytes) {
			w.blind += size
			at.asked = true
			w.missing = append(w.missing, at)
		} else {
			w.partial = true
		}
	}
}

// conclude keeps the forecast, if the walk saw all of the tree that it has.
func (w *walk) conclude(ctx context.Context) {
	if w.profile == nil || w.partial || ctx.Err() != nil {
		return
	}
	w.race.mu.Lock()
	defer w.race.mu.Unlock()
	w.race.forecast = Forecast{w.profile, w.forecast}
}

// hand passes the found files to the senders.
func (w *walk) hand() {
	w.race.foresee(w.found)
	w.found = w.found[:0]
}

// look finds the wanted entries of a directory.
func (w *walk) look(dir *tree.Directory, at PathHash) {
	if w.compared += dir.Len(); w.compared > maxCompared {
		w.partial = true
		return
	}
	first := len(w.todo)
	for i := range dir.Len() {
		kind := dir.Kind(i)
		if kind == tree.Symlink || kind == tree.File && w.profile == nil {
			continue
		}
		h := at.Child(dir.Name(i))
		switch {
		case w.profile != nil && !w.profile.predicts(dir, i, h):
		case kind == tree.File && w.files < maxFiles:
			d := dir.At(i).Digest
			w.forecast = append(w.forecast, predicted{h, d.SizeBytes()})
			if w.isFirst(h, d) {
				continue
			}
			w.files++
			w.found = append(w.found, file{digest: d, hash: h, class: classOf(w.profile, h, d.SizeBytes())})
		case kind == tree.Dir && w.directories < maxDirectories:
			w.directories++
			w.todo = append(w.todo, visit{directoryAt: directoryAt{digest: dir.At(i).Digest, hash: h}})
		default:
			w.partial = true
		}
	}
	slices.Reverse(w.todo[first:]) // so that they are read in their order
}

// ask starts a call for directories that are missing.
func (w *walk) ask(ctx context.Context) {
	r := w.race
	n := min(len(w.missing), directoriesPerCall, w.left)
	visits := w.missing[:n:n]
	w.missing = w.missing[n:]
	if n == 0 {
		w.missing, w.partial = nil, true
		return
	}
	w.left -= n
	ds := make([]digest.Digest, len(visits))
	for i, p := range visits {
		ds[i] = p.digest
	}
	trees, most := w.wholeTrees(visits)
	came := make(chan struct{}) // ds have
	for i, at := range trees {
		w.run(trees[i:i+1:i+1], func() {
			r.fetchTree(ctx, at.digest, most)
			<-came // the tree may not have brought its root
		})
	}
	w.run(visits[len(trees):], func() {
		r.fetchDirectories(ctx, ds)
		close(came)
	})
}

// run runs a call that brings some directories.
func (w *walk) run(visits []visit, call func()) {
	w.calls++
	w.race.running.Go(func() {
		call()
		w.came <- visits
	})
}

// wholeTrees returns those of the missing directories whose whole trees are fetched at once, and how
// many directories of each: the first ones below the root. An action that is the first with a tree,
// or whose profile is of another one, would wait a round trip for each level.
func (w *walk) wholeTrees(missing []visit) (trees []visit, most int) {
	most = w.trees
	if most == 0 || missing[0].digest == w.race.root {
		return nil, 0
	}
	w.trees = 0
	if !w.race.limits.trees.worth() {
		return nil, 0
	}
	trees = missing[:min(len(missing), maxTrees)]
	return trees, most / len(trees)
}

// fetchTree fetches so many directories of a tree.
func (r *Race) fetchTree(ctx context.Context, root digest.Digest, most int) {
	release, err := r.limits.directory(ctx)
	if err != nil {
		return
	}
	defer release()
	limited, cancel := context.WithTimeout(ctx, treeTime)
	defer cancel()
	fetched, err := r.source.PrefetchTree(limited, root, most, r.mentions.Learned)
	if errors.Is(err, errors.ErrUnsupported) {
		r.limits.trees.unsupported.Store(true)
	}
	if ctx.Err() == nil {
		r.limits.trees.ended(len(fetched) == 0 && limited.Err() != nil)
	}
	r.learned(fetched)
}

// fetchRemembered requests the directories that the last run read, all at once. Most of them exist
// again, and then no level has to wait for the one above it; for the others the walk continues as
// if nothing was known.
func (r *Race) fetchRemembered(ctx context.Context) {
	for ds := range slices.Chunk(r.profile.directories, directoriesPerCall) {
		r.running.Go(func() { r.fetchDirectories(ctx, ds) })
	}
}

// want has directories fetched for mentions, in few calls at a time: other races need calls, too.
func (r *Race) want(ctx context.Context, ds []digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = append(r.wanted, ds...)
	if r.wanting < maxDirectoryCalls {
		r.wanting++
		r.running.Go(func() {
			for ds := r.takeWanted(); len(ds) > 0; ds = r.takeWanted() {
				r.fetchDirectories(ctx, ds)
			}
		})
	}
}

// takeWanted returns the directories for the next call, none if there is no need for one.
func (r *Race) takeWanted() (ds []digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if ds, r.wanted = r.wanted, nil; len(ds) == 0 {
		r.wanting--
	}
	return ds
}

func (r *Race) fetchDirectories(ctx context.Context, ds []digest.Digest) {
	release, err := r.limits.directory(ctx)
	if err != nil {
		return
	}
	defer release()
	// Missing directories will not be found.
	began := time.Now()
	fetched, _ := r.source.PrefetchDirectories(ctx, ds)
	if ctx.Err() == nil && len(fetched) > 0 {
		r.limits.pace.took(began, 0, usage{})
	}
	r.learned(fetched)
}

// learned notes the end of a call for directories.
func (r *Race) learned(fetched []digest.Digest) {
	r.mentions.Learned() // others may have fetched some
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range fetched {
		r.stats.Directories.add(d)
	}
}

// foreseeFirst has the files that the last run read first requested before the tree is known: most
// of them exist again. It returns them for the walk.
func (r *Race) foreseeFirst() map[PathHash]digest.Digest {
	first := make(map[PathHash]digest.Digest, len(r.profile.first))
	var files []file
	for _, f := range r.profile.first {
		if _, again := first[f.Path]; again || !r.profile.containsCheap(f.Path) {
			continue
		}
		first[f.Path] = f.Digest
		files = append(files, file{digest: f.Digest, hash: f.Path, class: classOf(r.profile, f.Path, f.Digest.SizeBytes())})
	}
	r.foresee(files)
	return first
}

// isFirst reports whether foreseeFirst has handled a file of the tree.
func (w *walk) isFirst(h PathHash, d digest.Digest) bool {
	known, ok := w.first[h]
	delete(w.first, h)
	return ok && known == d
}
