package prefetch

import (
	"encoding/hex"
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

// A place is a directory at a path.
type place struct {
	digest digest.Digest
	hash   PathHash // of the path
}

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
	level := []place{{digest: root, hash: RootHash}}
	for i := 0; i < len(level) && i < maxDirectories; i++ {
		at := level[i]
		dir, ok := local(at.digest)
		if !ok || !read(at.hash) {
			continue
		}
		if _, again := seen[at.digest]; !again {
			seen[at.digest] = struct{}{}
			if bytes += at.digest.SizeBytes(); len(found) == maxRemembered || bytes > maxRememberedBytes {
				break
			}
			found = append(found, at.digest)
		}
		for j := range dir.Len() {
			if dir.Kind(j) == tree.Dir {
				level = append(level, place{digest: dir.At(j).Digest, hash: at.hash.Child(dir.Name(j))})
			}
		}
	}
	return found
}

// maxCompared bounds the entries of directories that share looks at, which may occur at many paths:
// a fifth of a second.
const maxCompared = 1 << 22

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
	files, compared := 0, 0
	level := []place{{digest: r.Root, hash: RootHash}}
	for i := 0; i < len(level) && i < maxDirectories && files < maxFiles; i++ {
		dir, ok := r.Local(level[i].digest)
		if !ok {
			continue
		}
		if compared += dir.Len(); compared > maxCompared {
			break
		}
		for j := range dir.Len() {
			h := level[i].hash.Child(dir.Name(j))
			switch {
			case dir.Kind(j) == tree.Symlink || !p.predicts(dir, j, h):
			case dir.Kind(j) == tree.Dir:
				level = append(level, place{digest: dir.At(j).Digest, hash: h})
			default:
				files++
				bytes := costOfFile + float64(dir.At(j).Digest.SizeBytes())
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

// outdated reports whether old and now differ enough to be written: by an eighth, because with each
// change of an input its parent directories change, and will change again.
func outdated(old, now []digest.Digest) bool {
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
	return 8*(max(len(old), len(now))-same) > len(now)
}

func directoriesMessage(ds []digest.Digest) *profiles.Directories {
	if len(ds) == 0 {
		return nil
	}
	m := &profiles.Directories{}
	for _, d := range ds {
		m.Hashes = d.AppendHash(m.Hashes)
		m.Sizes = append(m.Sizes, d.SizeBytes())
	}
	return m
}

// parseDirectories returns the directories that a message holds, nil if it breaks a
// rule. They are of the function fn.
func parseDirectories(m *profiles.Directories, fn digest.Function) []digest.Digest {
	sizes, hashes := m.GetSizes(), m.GetHashes()
	if len(sizes) == 0 || len(sizes) > maxRemembered || len(hashes) != len(sizes)*digest.HashSize {
		return nil
	}
	ds := make([]digest.Digest, len(sizes))
	left := int64(maxRememberedBytes)
	for i, size := range sizes {
		d, err := digest.Parse(fn, hex.EncodeToString(hashes[i*digest.HashSize:][:digest.HashSize]), size)
		if err != nil || size > left {
			return nil
		}
		left -= size
		ds[i] = d
	}
	return ds
}
