package fuse

import (
	"fmt"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/names"
)

// forGood is how long the kernel may cache attributes, entries and absences: inputs do not change
// while the root exists.
const forGood = 10 * 365 * 24 * time.Hour

// handler answers the kernel for the layer of a mount. Undefined requests get ENOSYS, after which
// the kernel does not ask again: opendir, access, xattrs, statx, lseek, ioctl.
type handler struct {
	fuse.RawFileSystem
	mount *Mount
}

func (h *handler) layer() *Layer { return h.mount.layer.Load() }

var _ fuse.RawFileSystem = (*handler)(nil)

func (h *handler) String() string { return names.MountSource }

func (h *handler) Lookup(cancel <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	l := h.layer()
	parent := l.nodes.get(in.NodeId)
	if parent == nil || parent.Kind != tree.Dir {
		return fuse.ENOENT
	}
	out.SetEntryTimeout(forGood)
	if parent.area != treeArea {
		if e, ok := l.findBlob(parent, name); ok {
			return h.found(parent, e, nil, out)
		}
		return fuse.OK
	}
	d, status := l.read(l.access(cancel, in), parent)
	if !status.Ok() {
		return status
	}
	e, rest, ok := d.find(name)
	l.countLookup(ok)
	if ok {
		return h.found(parent, e, rest, out)
	}
	l.lookAbsent(parent, name)
	return fuse.OK // node 0: the absence is kept as well
}

// found answers a lookup of the entry e of parent.
func (h *handler) found(parent *Node, e tree.Entry, rest Cover, out *fuse.EntryOut) fuse.Status {
	if h.tell(parent, e, rest, out) {
		return fuse.OK
	}
	h.layer().failAt(e.Kind, joined(parent.Path(), e.Name), fmt.Errorf("the command looked at %w: so many paths", tree.ErrTooLarge))
	return fuse.Status(syscall.ENOMEM)
}

// tell answers with the entry e of parent, and counts the kernel's lookup. False: there is no
// memory for one more node.
func (h *handler) tell(parent *Node, e tree.Entry, rest Cover, out *fuse.EntryOut) bool {
	n := h.layer().nodes.know(parent, e, rest)
	if n == nil {
		return false
	}
	h.layer().look(n, tree.LookUp)
	out.NodeId = n.id
	out.Generation = 1 // node ids are never used again
	out.SetEntryTimeout(forGood)
	out.SetAttrTimeout(forGood)
	h.layer().attr(n, &out.Attr)
	return true
}

func (h *handler) Forget(id, count uint64) { h.layer().nodes.forget(id, count) }

func (h *handler) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	n := h.layer().nodes.get(in.NodeId)
	if n == nil {
		return fuse.ENOENT
	}
	out.SetTimeout(forGood)
	h.layer().attr(n, &out.Attr)
	return fuse.OK
}

func (h *handler) Readlink(_ <-chan struct{}, in *fuse.InHeader) ([]byte, fuse.Status) {
	n := h.layer().nodes.get(in.NodeId)
	if n == nil || n.Kind != tree.Symlink {
		return nil, fuse.EINVAL
	}
	h.layer().look(n, tree.LookInside)
	h.layer().hooks.Read(n)
	return []byte(n.Target), fuse.OK
}

func (h *handler) Open(cancel <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	l := h.layer()
	n := l.nodes.get(in.NodeId)
	if n == nil || n.Kind != tree.File {
		return fuse.ENOENT
	}
	var b *blob
	watching := l.ignored(in.Pid)
	if watching || forCopyUp(in) {
		if b = l.blobs.use(n.Digest, n.id); b == nil {
			out.OpenFlags = fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH
			return fuse.OK // handle 0, for which Read must get the content
		}
	} else {
		if n.area == treeArea {
			l.hooks.Read(n) // before the wait, so that neighbouring files can be fetched meanwhile
		}
		var status fuse.Status
		if b, status = l.open(l.access(cancel, &in.InHeader), n); !status.Ok() {
			return status
		}
	}
	out.Fh = l.blobs.handle(b)
	if b.file == nil && b.arriving == nil {
		out.OpenFlags = fuse.FOPEN_PASSTHROUGH | fuse.FOPEN_NOFLUSH
		out.BackingID = b.id
	} else {
		out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	}
	if n.area == treeArea && !watching {
		l.look(n, tree.LookInside)
		l.hooks.Read(n)
	}
	return fuse.OK
}

func (h *handler) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	size := min(int(in.Size), len(buf))
	if in.Fh == 0 {
		return h.layer().readOnce(h.layer().access(cancel, &in.InHeader), in.NodeId, buf[:size], int64(in.Offset))
	}
	b := h.layer().blobs.at(in.Fh)
	if b == nil || b.file == nil && b.arriving == nil {
		return nil, fuse.EBADF
	}
	if b.arriving != nil {
		n := h.layer().nodes.get(in.NodeId)
		if n == nil {
			return nil, fuse.ENOENT
		}
		return h.layer().readArriving(h.layer().access(cancel, &in.InHeader), n, b.arriving, buf[:size], int64(in.Offset))
	}
	// The handle keeps the file open until the kernel has this answer.
	return fuse.ReadResultFd(b.file.Fd(), int64(in.Offset), size), fuse.OK
}

func (h *handler) Release(_ <-chan struct{}, in *fuse.ReleaseIn) { h.layer().blobs.release(in.Fh) }

func (h *handler) Flush(<-chan struct{}, *fuse.FlushIn) fuse.Status { return fuse.ENOSYS }

func (h *handler) ReadDir(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return h.list(cancel, in, func(_ *Node, e *fuse.DirEntry, _ *Covered) bool {
		return out.AddDirEntry(*e)
	})
}

func (h *handler) ReadDirPlus(cancel <-chan struct{}, in *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	return h.list(cancel, in, func(n *Node, d *fuse.DirEntry, c *Covered) bool {
		o := out.AddDirLookupEntry(*d)
		if o == nil {
			return false
		}
		if c != nil { // not "." or "..", which the kernel does not need
			h.tell(n, c.Entry, c.Rest, o) // without memory for it the kernel asks later
		}
		return true
	})
}

// list calls add for the entries of a directory from in.Offset on, until it
// returns false. Offset 0 is ".", 1 is "..", i+2 is entry i.
func (h *handler) list(
	cancel <-chan struct{}, in *fuse.ReadIn, add func(*Node, *fuse.DirEntry, *Covered) bool,
) fuse.Status {
	l := h.layer()
	n := l.nodes.get(in.NodeId)
	if n == nil || n.Kind != tree.Dir || n.area != treeArea {
		return fuse.ENOENT
	}
	d, status := l.read(l.access(cancel, &in.InHeader), n)
	if !status.Ok() {
		return status
	}
	l.look(n, tree.LookThrough)
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
		dirent.Name, dirent.Mode, dirent.Ino = c.Entry.Name, typeOf(c.Entry.Kind), l.nodes.inodes.Of(n.ino, c.Entry.Name)
		if !add(n, &dirent, &c) {
			break
		}
	}
	return fuse.OK
}

func (h *handler) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize = 4096, 4096
	out.NameLen = tree.MaxName
	return fuse.OK
}

// attr fills in the attributes of n for stat(2).
func (l *Layer) attr(n *Node, a *fuse.Attr) {
	*a = fuse.Attr{
		Ino:   n.ino,
		Mode:  n.Perm | typeOf(n.Kind),
		Nlink: 1,
		Owner: fuse.Owner{Uid: l.owner.UID, Gid: l.owner.GID},
	}
	switch n.Kind {
	case tree.File:
		a.Size = uint64(n.Digest.SizeBytes())
		a.Blocks = (a.Size + 511) / 512
	case tree.Symlink:
		a.Size = uint64(len(n.Target))
	case tree.Dir:
		a.Size = 4096
		a.Blocks = 8
	}
	a.SetTimes(&n.MTime, &n.MTime, &n.MTime)
}

func typeOf(k tree.Kind) uint32 {
	switch k {
	case tree.Dir:
		return fuse.S_IFDIR
	case tree.Symlink:
		return fuse.S_IFLNK
	}
	return fuse.S_IFREG
}
