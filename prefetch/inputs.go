package prefetch

import (
	"encoding/hex"
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// Inputs are inputs that a run read and that the next one requests before it knows its tree. Those
// that are not given are not changed.
type Inputs struct {
	Directories []digest.Digest // as in Directories
	First       []First         // as in Recorder.FirstFiles
}

// The bounds of the directories that are remembered of an action.
const (
	maxRemembered      = 4096
	maxRememberedBytes = 16 << 20 // the sum of their sizes
)

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

func directoriesMessage(ds []digest.Digest) *profiles.Directories {
	if len(ds) == 0 {
		return nil
	}
	m := &profiles.Directories{}
	m.Hashes, m.Sizes = pack(ds)
	return m
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

// A First is a file of at most 1 MiB that a run read before most others.
type First struct {
	Path   PathHash
	Digest digest.Digest
}

// The bounds of the files that are remembered because a run read them first: about 10 KiB in a
// record.
const (
	maxFirst      = 256
	maxFirstBytes = 4 << 20
	// maxFirstPaths bounds the paths among which they are: files, and directories on the way to them.
	maxFirstPaths = 1024
)

// FirstFiles returns the files below root that the run read first, except large ones, in the order
// in which it read them. It reads only directories that local has, and waits only for the disk.
func (r *Recorder) FirstFiles(
	local func(digest.Digest) (*tree.Directory, bool), root digest.Digest,
) []First {
	var found []First
	seen := map[string]struct{}{}
	in := newFinder(local, root)
	for _, read := range r.after(0) {
		if len(seen)+len(in.at) >= maxFirstPaths {
			break
		}
		if _, again := seen[read.path]; again {
			continue
		}
		seen[read.path] = struct{}{}
		if read.kind != tree.File {
			continue
		}
		if d, ok := in.find(read.path, tree.File); ok && d.SizeBytes() <= largeBytes {
			found = append(found, First{Path: HashPath(read.path), Digest: d})
		}
	}
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
