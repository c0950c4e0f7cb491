package prefetch

import (
	"strings"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

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
	// maxFoundBytes bounds the directories that are kept while these files are looked for.
	maxFoundBytes = 16 << 20
)

// FirstFiles returns the files below root that the run read first, except large ones, in the order in
// which it read them. It reads only directories that local has, and waits only for the disk.
func (r *Recorder) FirstFiles(
	local func(digest.Digest) (*tree.Directory, bool), root digest.Digest,
) []First {
	var found []First
	seen := map[string]struct{}{}
	in := finder{local: local, root: root, at: map[string]digest.Digest{}, kept: map[digest.Digest]*tree.Directory{}}
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

// A finder finds entries of an input tree by their paths, in local directories.
type finder struct {
	local func(digest.Digest) (*tree.Directory, bool)
	root  digest.Digest
	at    map[string]digest.Digest // of directories by path; zero: there is none
	kept  map[digest.Digest]*tree.Directory
	bytes int // of kept
}

// find returns the digest of the entry of that kind at path.
func (f *finder) find(path string, kind tree.Kind) (d digest.Digest, ok bool) {
	i := strings.LastIndexByte(path, '/')
	above := f.root
	if i >= 0 {
		above = f.directoryAt(path[:i])
	}
	if dir := f.directory(above); dir != nil {
		if e, found := dir.Find(path[i+1:]); found && e.Kind == kind {
			return e.Digest, true
		}
	}
	return d, false
}

// directoryAt returns the digest of the directory at path.
func (f *finder) directoryAt(path string) digest.Digest {
	d, known := f.at[path]
	if !known {
		d, _ = f.find(path, tree.Dir)
		f.at[path] = d
	}
	return d
}

// directory returns a directory, nil if it is not local.
func (f *finder) directory(d digest.Digest) *tree.Directory {
	if dir := f.kept[d]; dir != nil || d.IsZero() {
		return dir
	}
	dir, ok := f.local(d)
	if !ok {
		return nil
	}
	if f.bytes+dir.Bytes() <= maxFoundBytes {
		f.bytes += dir.Bytes()
		f.kept[d] = dir
	}
	return dir
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
