package image

import (
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/erofs"
)

// Blobs is the folder of the local blobs, plain files that never change and may be removed at any
// time. With it, subtrees that several roots have in common are shown without this process.
type Blobs struct {
	Dir string
	// Path returns the path below Dir of a blob's file, whether or not it exists; Parse is its
	// inverse. All blobs of a digest function are in one folder of Dir.
	Path  func(digest.Digest) string
	Parse func(path string) (digest.Digest, bool)
	// Used, if not nil, is called soon after an action has opened the file of a blob, at the latest
	// when its root is closed. It must not block.
	Used func(digest.Digest)
}

// folder returns the name of the folder in Dir that has the blobs of d's tree.
func (b *Blobs) folder(d digest.Digest) string {
	name, _, _ := strings.Cut(b.Path(d), "/")
	return name
}

// show returns an entry as an image shows it.
func (b *Blobs) show(e tree.Entry) erofs.Entry {
	out, redirected := b.bare(e)
	if redirected {
		out.Redirect = "/" + b.Path(e.Digest)
	}
	return out
}

// bare is show without the path of the data, and reports whether there is one.
func (b *Blobs) bare(e tree.Entry) (out erofs.Entry, redirected bool) {
	out = erofs.Entry{Name: e.Name, MTime: e.MTime, Mode: e.Perm, Target: e.Target}
	switch e.Kind {
	case tree.Dir:
		out.Mode |= unix.S_IFDIR
	case tree.Symlink:
		out.Mode |= unix.S_IFLNK
	default:
		out.Mode |= unix.S_IFREG
		out.Size = e.Digest.SizeBytes()
	}
	return out, out.Size > 0
}

// A scratch has the memory for the region of one directory at a time.
type scratch struct {
	entries []erofs.Entry
	paths   []byte // redirects of files, one after the other
	ends    []int  // of each in paths
	region  []byte
}

// mostScratch limits the entries, and mostScratchBytes the bytes of a region, for whose memory a
// scratch keeps.
const mostScratch, mostScratchBytes = 1 << 10, 1 << 20

// trim drops the memory of a large directory.
func (s *scratch) trim() {
	if cap(s.entries) > mostScratch || cap(s.region) > mostScratchBytes {
		*s = scratch{}
	}
}

// showAll returns the entries of a directory as an image shows them, until the next use of s. All
// redirects share their memory.
func (b *Blobs) showAll(dir *tree.Directory, s *scratch) ([]erofs.Entry, error) {
	s.entries, s.paths, s.ends = slices.Grow(s.entries[:0], dir.Len()), s.paths[:0], s.ends[:0]
	for i := range dir.Len() {
		e := dir.At(i)
		if namesNothing(e) {
			return nil, &cas.MissingError{Digests: []digest.Digest{e.Digest}}
		}
		out, redirected := b.bare(e)
		if redirected {
			s.paths = append(append(s.paths, '/'), b.Path(e.Digest)...)
		}
		s.ends = append(s.ends, len(s.paths))
		s.entries = append(s.entries, out)
	}
	paths, from := string(s.paths), 0
	for i, to := range s.ends {
		s.entries[i].Redirect = paths[from:to]
		from = to
	}
	return s.entries, nil
}

// Source provides the directories of an input root.
type Source interface {
	// LocalDirectory returns a directory that is available without waiting.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
}
