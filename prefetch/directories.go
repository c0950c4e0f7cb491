package prefetch

import (
	"cmp"
	"encoding/hex"
	"iter"
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// maxDirectories bounds the directories of an input root that are gone through.
const maxDirectories = 1 << 16

// The bounds of the directories that are remembered of an action.
const (
	maxRemembered      = 4096
	maxRememberedBytes = 16 << 20 // the sum of their sizes
)

// A directoryAt is a directory at a path.
type directoryAt struct {
	digest digest.Digest
	hash   PathHash // of the path
}

// maxCompared bounds the entries of directories that a tour or a walk looks at: a fifth of a
// second.
const maxCompared = 1 << 22

// A tour goes through local directories of an input tree, level by level, within maxDirectories and
// maxCompared: a run can read one large directory at any number of paths.
type tour struct {
	local    func(digest.Digest) (*tree.Directory, bool)
	level    []directoryAt // to be gone through, the next one first
	entered  int           // how many directories were put in level so far
	compared int           // entries of those that were yielded
}

// newTour returns a tour that begins at root. local waits only for the disk.
func newTour(local func(digest.Digest) (*tree.Directory, bool), root digest.Digest) *tour {
	t := &tour{local: local}
	t.enter(root, RootHash)
	return t
}

// enter has the directory d at the path with hash h gone through later.
func (t *tour) enter(d digest.Digest, h PathHash) {
	if t.entered < maxDirectories {
		t.entered++
		t.level = append(t.level, directoryAt{digest: d, hash: h})
	}
}

// all yields the directories that are local, and at a path that wanted has.
func (t *tour) all(wanted func(PathHash) bool) iter.Seq2[directoryAt, *tree.Directory] {
	return func(yield func(directoryAt, *tree.Directory) bool) {
		for len(t.level) > 0 {
			at := t.level[0]
			t.level = t.level[1:]
			dir, ok := t.local(at.digest)
			if !ok || !wanted(at.hash) {
				continue
			}
			if t.compared += dir.Len(); t.compared > maxCompared || !yield(at, dir) {
				return
			}
		}
	}
}

// anywhere has all paths.
func anywhere(PathHash) bool { return true }

// Directories returns the digests of the directories below root that a run read; read is
// Recorder.Has. It returns them level by level, each once, and stops at a maximum number. It reads
// only directories that local has, and skips everything below other directories. It waits only for
// the disk.
func Directories(
	local func(digest.Digest) (*tree.Directory, bool), root digest.Digest, read func(PathHash) bool,
) []digest.Digest {
	var found []digest.Digest
	var bytes int64
	seen := map[digest.Digest]struct{}{}
	t := newTour(local, root)
	for at, dir := range t.all(read) {
		if _, again := seen[at.digest]; !again {
			seen[at.digest] = struct{}{}
			if bytes += at.digest.SizeBytes(); len(found) == maxRemembered || bytes > maxRememberedBytes {
				break
			}
			found = append(found, at.digest)
		}
		for i := range dir.Len() {
			if dir.Kind(i) == tree.Dir {
				t.enter(dir.At(i).Digest, at.hash.Child(dir.Name(i)))
			}
		}
	}
	return found
}

// The bounds of the files that are remembered because a run read them first: about 10 KiB in a
// record.
const (
	maxFirst      = 256
	maxFirstBytes = 4 << 20
	// maxFirstPaths bounds the paths among which they are: files, and directories on the way to them.
	maxFirstPaths = 1024
)

// FirstFiles returns the files below root that a run read first, except large ones, in the order in
// which it read them; order is Recorder.Hashes. It reads only directories that local has, and waits
// only for the disk.
func FirstFiles(
	local func(digest.Digest) (*tree.Directory, bool), root digest.Digest, order []PathHash,
) []First {
	at := make(map[PathHash]int, min(len(order), maxFirstPaths))
	for i, h := range order[:min(len(order), maxFirstPaths)] {
		at[h] = i
	}
	var found []First
	t := newTour(local, root)
	for in, dir := range t.all(anywhere) {
		for i := range dir.Len() {
			h := in.hash.Child(dir.Name(i))
			if _, ok := at[h]; !ok {
				continue
			}
			switch dir.Kind(i) {
			case tree.Dir:
				t.enter(dir.At(i).Digest, h)
			case tree.File:
				if d := dir.At(i).Digest; d.SizeBytes() <= largeBytes {
					found = append(found, First{Path: h, Digest: d})
				}
			}
		}
	}
	slices.SortFunc(found, func(a, b First) int { return cmp.Compare(at[a.Path], at[b.Path]) })
	return found[:withinFirst(found)]
}

// withinFirst returns how many files are within the bounds.
func withinFirst(files []First) int {
	var bytes int64
	for i, f := range files {
		size := f.Digest.SizeBytes()
		if bytes += size; i == maxFirst || bytes > maxFirstBytes || size > largeBytes {
			return i
		}
	}
	return len(files)
}

// digestsOf returns the digests of files.
func digestsOf(files []First) []digest.Digest {
	ds := make([]digest.Digest, len(files))
	for i, f := range files {
		ds[i] = f.Digest
	}
	return ds
}

// A Run is one that has ended.
type Run struct {
	// Local returns a Directory that is local. It waits only for the disk.
	Local func(digest.Digest) (*tree.Directory, bool)
	Root  digest.Digest       // of the input root
	Read  func(PathHash) bool // Recorder.Has
	// Failed: it may have ended before it read what a run that succeeds reads, and counts half.
	Failed bool
}

// costOfFile is how many bytes a file counts in addition to its own.
const costOfFile = 4 << 10

// share returns which share of the predicted bytes the run read. It is false if nothing was
// predicted, as far as the directories are local. Of a very large root the first levels count.
func (r Run) share(p *Profile) (right float64, ok bool) {
	var all float64
	files := 0
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
				files++
				bytes := costOfFile + float64(dir.At(i).Digest.SizeBytes())
				all += bytes
				if r.Read(h) {
					right += bytes
				}
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

// The shares of remembered inputs, one in so many, that must differ to be written.
const (
	// With each change of an input its parent directories change, and will change again.
	staleDirectories = 8
	// Parallel programs read other files first each time.
	staleFirst = 4
)

// outdated reports whether old and now differ by more than one in so many.
func outdated(old, now []digest.Digest, share int) bool {
	if slices.Equal(old, now) {
		return false
	}
	known := make(map[digest.Digest]struct{}, len(old))
	for _, d := range old {
		known[d] = struct{}{}
	}
	same := 0
	for _, d := range now {
		if _, ok := known[d]; ok {
			same++
		}
	}
	return share*(max(len(old), len(now))-same) > len(now)
}

func directoriesMessage(ds []digest.Digest) *profiles.Directories {
	if len(ds) == 0 {
		return nil
	}
	m := &profiles.Directories{}
	m.Hashes, m.Sizes = pack(ds)
	return m
}

// pack returns the hashes of digests, one after another, and their sizes.
func pack(ds []digest.Digest) (hashes []byte, sizes []int64) {
	for _, d := range ds {
		hashes = d.AppendHash(hashes)
		sizes = append(sizes, d.SizeBytes())
	}
	return hashes, sizes
}

// unpack is the inverse of pack, for at most so many digests, which are of the function fn. It
// returns nil for anything else.
func unpack(hashes []byte, sizes []int64, most int, fn digest.Function) []digest.Digest {
	if len(sizes) == 0 || len(sizes) > most || len(hashes) != len(sizes)*digest.HashSize {
		return nil
	}
	ds := make([]digest.Digest, len(sizes))
	for i, size := range sizes {
		d, err := digest.Parse(fn, hex.EncodeToString(hashes[i*digest.HashSize:][:digest.HashSize]), size)
		if err != nil {
			return nil
		}
		ds[i] = d
	}
	return ds
}

// parseDirectories returns the directories that a message holds, nil if it breaks a
// rule. They are of the function fn.
func parseDirectories(m *profiles.Directories, fn digest.Function) []digest.Digest {
	ds := unpack(m.GetHashes(), m.GetSizes(), maxRemembered, fn)
	left := int64(maxRememberedBytes)
	for _, d := range ds {
		if d.SizeBytes() > left {
			return nil
		}
		left -= d.SizeBytes()
	}
	return ds
}

func firstMessage(files []First) *profiles.Files {
	if len(files) == 0 {
		return nil
	}
	m := &profiles.Files{}
	m.Hashes, m.Sizes = pack(digestsOf(files))
	for _, f := range files {
		m.Paths = append(m.Paths, uint64(f.Path))
	}
	return m
}

// parseFirst returns the files that a message holds, nil if it breaks a rule. They are of the
// function fn.
func parseFirst(m *profiles.Files, fn digest.Function) []First {
	ds := unpack(m.GetHashes(), m.GetSizes(), maxFirst, fn)
	if ds == nil || len(m.GetPaths()) != len(ds) {
		return nil
	}
	files := make([]First, len(ds))
	for i, d := range ds {
		files[i] = First{Path: PathHash(m.GetPaths()[i]), Digest: d}
	}
	if withinFirst(files) < len(files) {
		return nil
	}
	return files
}
