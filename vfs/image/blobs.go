package image

import (
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/erofs"
)

// Blobs is the folder of the local blobs, plain files that never change and may be removed at any
// time. With it, subtrees that several roots have in common are shown without this process.
type Blobs struct {
	Dir string
	// Path returns the path below Dir of a blob's file, whether or not it exists; Parse is its
	// inverse.
	Path  func(digest.Digest) string
	Parse func(path string) (digest.Digest, bool)
	// Used, if not nil, is called soon after an action has opened the file of a blob, at the latest
	// when its root is closed. It must not block.
	Used func(digest.Digest)
}

// show returns an entry as an image shows it.
func (b *Blobs) show(e tree.Entry) erofs.Entry {
	out := erofs.Entry{Name: e.Name, MTime: e.MTime, Mode: e.Perm, Target: e.Target}
	switch e.Kind {
	case tree.Dir:
		out.Mode |= unix.S_IFDIR
	case tree.Symlink:
		out.Mode |= unix.S_IFLNK
	default:
		out.Mode |= unix.S_IFREG
		if out.Size = e.Digest.SizeBytes(); out.Size > 0 {
			out.Redirect = "/" + b.Path(e.Digest)
		}
	}
	return out
}

// Source provides the directories of an input root.
type Source interface {
	// LocalDirectory returns a directory that is available without waiting.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
}
