package erofs

import "io"

// bufferBytes is how much goes out at once.
const bufferBytes = 256 << 10

// An output gathers an image. After an error of the writer it only counts.
type output struct {
	w   io.Writer
	buf []byte
	off int64 // of the start of buf in the image
	err error
}

func newOutput(w io.Writer) *output { return &output{w: w, buf: make([]byte, 0, bufferBytes)} }

// at is where the next byte goes.
func (o *output) at() int64 { return o.off + int64(len(o.buf)) }

// next returns the next n bytes, zeros, to be filled before the next call; n is at most some
// blocks.
func (o *output) next(n int) []byte {
	if len(o.buf)+n > cap(o.buf) {
		o.flush()
	}
	from := len(o.buf)
	o.buf = o.buf[:from+n]
	b := o.buf[from:]
	clear(b)
	return b
}

// skip writes zeros up to the given place, less than a block away.
func (o *output) skip(to int64) { o.next(int(to - o.at())) }

func (o *output) flush() error {
	if o.err == nil && len(o.buf) > 0 {
		_, o.err = o.w.Write(o.buf)
	}
	o.off += int64(len(o.buf))
	o.buf = o.buf[:0]
	return o.err
}

// write writes all parts at their positions.
func (l *layout) write(out *output) {
	out.next(superOffset)
	putSuper(out.next(superSize), &l.o, int64(len(l.nids))+1, l.size()>>blockBits)
	w := writer{l: l, out: out, data: uint32(blocksOf(l.end))}
	w.inode(l.dirs[0].entry, rootNID, rootNID)
	for i := range l.dirs {
		f := &l.dirs[i]
		for j := range f.entry.Entries {
			w.inode(&f.entry.Entries[j], l.nids[f.first+j], f.nid)
		}
	}
	out.skip(int64(w.data) << blockBits)
	for i := range l.dirs {
		w.blocks(&l.dirs[i])
	}
	for _, target := range l.links {
		copy(out.next(blockSize), target)
	}
}

// A writer goes through a layout in the order in which it was made.
type writer struct {
	l     *layout
	out   *output
	data  uint32 // first block behind the metadata
	dirs  int    // directories seen
	links uint32 // symlinks with a block seen
}

// inode writes the inode of e and the bytes after it.
func (w *writer) inode(e *Entry, nid, parent uint32) {
	i := w.l.inode(e)
	i.parent = parent
	w.out.skip(int64(nid) * slotSize)
	switch fileType(e.Mode) {
	case typeFile:
		i.size = e.Size
		w.put(e, i)
	case typeDir:
		f := &w.l.dirs[w.dirs]
		w.dirs++
		i.size, i.block = f.size, w.data+f.block
		if tail := tailOf(f.size); tail > 0 && inlined(nid, w.l.headSize(e, f.size), tail) {
			i.layout = layoutInline
			w.put(e, i)
			w.entries(f, w.out.next(tail), f.last, f.list.len())
			return
		}
		w.put(e, i)
	case typeSymlink:
		i.size = int64(len(e.Target))
		if inlined(nid, w.l.inodeSize(e, i.size), len(e.Target)) {
			i.layout = layoutInline
			w.put(e, i)
			copy(w.out.next(len(e.Target)), e.Target)
			return
		}
		i.block = w.data + uint32(w.l.dirBl) + w.links
		w.links++
		w.put(e, i)
	}
}

func (w *writer) put(e *Entry, i inode) { w.l.put(w.out.next(w.l.headSize(e, i.size)), e, i) }

func (w *writer) entries(f *folder, b []byte, from, to int) {
	f.list.put(b, from, to, numbers{
		entries: w.l.nids[f.first : f.first+len(f.entry.Entries)],
		self:    f.nid, parent: w.l.dirs[f.parent].nid,
	})
}

// blocks writes the blocks of a directory that do not lie behind its inode.
func (w *writer) blocks(f *folder) {
	for from := 0; from < f.list.len(); {
		to, _ := f.list.fill(from)
		tail := tailOf(f.size)
		if from == f.last && tail > 0 && inlined(f.nid, w.l.headSize(f.entry, f.size), tail) {
			return
		}
		w.entries(f, w.out.next(blockSize), from, to)
		from = to
	}
}
