package prefetch

import (
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
			if !wanted(at.hash) {
				continue
			}
			dir, ok := t.local(at.digest)
			if !ok {
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
