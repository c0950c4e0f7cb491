package vfs

import (
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/names"
)

// forGood is how long the kernel may keep attributes, entries and absences:
// inputs do not change while the root is there.
const forGood = 10 * 365 * 24 * time.Hour

// lowerFS answers the kernel for one root. What it does not define answers
// ENOSYS, after which the kernel does not ask again: opendir, access, xattrs,
// statx, lseek, ioctl.
type lowerFS struct {
	fuse.RawFileSystem
	root *Root
}

var _ fuse.RawFileSystem = (*lowerFS)(nil)

func (l *lowerFS) String() string { return names.MountSource }

func (l *lowerFS) Lookup(cancel <-chan struct{}, h *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	r := l.root
	parent := r.node(h.NodeId)
	if parent == nil || parent.Kind != Directory {
		return fuse.ENOENT
	}
	out.SetEntryTimeout(forGood)
	if parent.area != treeArea {
		if e, ok := r.findBlob(parent, name); ok {
			l.tell(parent, e, nil, out)
		}
		return fuse.OK
	}
	d, status := r.read(r.access(cancel, h), parent)
	if !status.Ok() {
		return status
	}
	e, rest, ok := d.find(name)
	r.markLookup(ok)
	if ok {
		l.tell(parent, e, rest, out)
	} else {
		r.lookAbsent(parent, name)
	}
	return fuse.OK // node 0: the absence is kept as well
}

// tell answers with the entry e of parent, and counts that the kernel knows it.
func (l *lowerFS) tell(parent *node, e tree.Entry, rest *cover, out *fuse.EntryOut) {
	n := l.root.know(parent, e, rest)
	l.root.look(n, tree.LookUp)
	out.NodeId = n.id
	out.Generation = 1 // node ids are never used again
	out.SetEntryTimeout(forGood)
	out.SetAttrTimeout(forGood)
	l.root.attr(n, &out.Attr)
}

func (l *lowerFS) Forget(id, count uint64) { l.root.forgetNode(id, count) }

func (l *lowerFS) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := l.root.node(in.NodeId)
	if n == nil {
		return fuse.ENOENT
	}
	out.SetTimeout(forGood)
	l.root.attr(n, &out.Attr)
	return fuse.OK
}

func (l *lowerFS) Readlink(_ <-chan struct{}, h *fuse.InHeader) ([]byte, fuse.Status) {
	n := l.root.node(h.NodeId)
	if n == nil || n.Kind != Symlink {
		return nil, fuse.EINVAL
	}
	l.root.look(n, tree.LookInside)
	l.root.markRead(n)
	return []byte(n.Target), fuse.OK
}

func (l *lowerFS) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	r := l.root
	n := r.node(in.NodeId)
	if n == nil || n.Kind != File {
		return fuse.ENOENT
	}
	var b *blob
	watching := r.fs.watcher.is(in.Pid)
	if watching || forCopyUp(in) {
		if b = r.blobs.use(n.Digest, n.id); b == nil {
			out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
			return fuse.OK // handle 0, for which Read has to get the content
		}
	} else {
		if n.area == treeArea {
			r.markRead(n) // before it waits, so that what is next to it can come meanwhile
		}
		var status fuse.Status
		if b, status = r.open(r.access(cancel, &in.InHeader), n); !status.Ok() {
			return status
		}
	}
	out.Fh = r.blobs.handle(b)
	if b.file == nil && b.arriving == nil {
		out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
		out.BackingID = b.id
	} else {
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	}
	if n.area == treeArea && !watching {
		r.look(n, tree.LookInside)
		r.markRead(n)
	}
	return fuse.OK
}

func (l *lowerFS) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	size := min(int(in.Size), len(buf))
	if in.Fh == 0 {
		return l.root.readOnce(l.root.access(cancel, &in.InHeader), in.NodeId, buf[:size], int64(in.Offset))
	}
	b := l.root.blobs.at(in.Fh)
	if b == nil || b.file == nil && b.arriving == nil {
		return nil, fuse.EBADF
	}
	if b.arriving != nil {
		n := l.root.node(in.NodeId)
		if n == nil {
			return nil, fuse.ENOENT
		}
		return l.root.readArriving(l.root.access(cancel, &in.InHeader), n, b.arriving, buf[:size], int64(in.Offset))
	}
	// The handle keeps the file open until the kernel has this answer.
	return fuse.ReadResultFd(b.file.Fd(), int64(in.Offset), size), fuse.OK
}

func (l *lowerFS) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { l.root.blobs.release(in.Fh) }

func (l *lowerFS) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

func (l *lowerFS) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return l.list(cancel, in, func(_ *node, e *fuse.DirEntry, _ *covered) bool {
		return out.AddDirEntry(*e)
	})
}

func (l *lowerFS) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return l.list(cancel, in, func(n *node, d *fuse.DirEntry, c *covered) bool {
		o := out.AddDirLookupEntry(*d)
		if o == nil {
			return false
		}
		if c != nil { // not "." or "..", which the kernel is not told of
			l.tell(n, c.entry, c.rest, o)
		}
		return true
	})
}

// list calls add for the entries of a directory from in.Offset on, until it
// returns false. Offset 0 is ".", 1 is "..", i+2 is entry i.
func (l *lowerFS) list(
	cancel <-chan struct{}, in *fuse.ReadIn, add func(*node, *fuse.DirEntry, *covered) bool,
) fuse.Status {
	r := l.root
	n := r.node(in.NodeId)
	if n == nil || n.Kind != Directory || n.area != treeArea {
		return fuse.ENOENT
	}
	d, status := r.read(r.access(cancel, &in.InHeader), n)
	if !status.Ok() {
		return status
	}
	r.look(n, tree.LookThrough)
	if in.Offset > uint64(d.len()+2) {
		return fuse.EINVAL
	}
	for i := int(in.Offset); i < d.len()+2; i++ {
		dirent := fuse.DirEntry{Mode: fuse.S_IFDIR, Ino: n.ino, Name: ".", Off: uint64(i) + 1}
		if i < 2 {
			if i == 1 {
				dirent.Name = ".."
				if n.parent != nil {
					dirent.Ino = n.parent.ino
				}
			}
			if !add(n, &dirent, nil) {
				break
			}
			continue
		}
		c, ok := d.at(i - 2)
		if !ok {
			continue
		}
		dirent.Name, dirent.Mode, dirent.Ino = c.entry.Name, typeOf(c.entry.Kind), r.inoOf(n.ino, c.entry.Name)
		if !add(n, &dirent, &c) {
			break
		}
	}
	return fuse.OK
}

func (l *lowerFS) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize = 4096, 4096
	out.NameLen = tree.MaxName
	return fuse.OK
}
