package erofs

import "sort"

// A listing has the names of a directory in the order of the image: its entries, "." and "..", all
// in byte order, because the kernel searches by bisection.
type listing struct {
	entries     []Entry
	dot, dotdot int // indices in the listing
}

func newListing(entries []Entry) listing {
	before := func(name string) int {
		if len(entries) == 0 || entries[0].Name > name {
			return 0 // nearly always
		}
		return sort.Search(len(entries), func(i int) bool { return entries[i].Name > name })
	}
	return listing{entries, before("."), before("..") + 1}
}

func (l *listing) len() int { return len(l.entries) + 2 }

// child returns the index in entries of the name at i, or -1 for "." and -2 for "..".
func (l *listing) child(i int) int {
	switch {
	case i == l.dot:
		return -1
	case i == l.dotdot:
		return -2
	case i > l.dotdot:
		return i - 2
	case i > l.dot:
		return i - 1
	}
	return i
}

func (l *listing) name(i int) string {
	switch c := l.child(i); c {
	case -1:
		return "."
	case -2:
		return ".."
	default:
		return l.entries[c].Name
	}
}

// fill computes the content of the block that begins at from: the end index to, and the number of
// bytes.
func (l *listing) fill(from int) (to, bytes int) {
	for to = from; to < l.len(); to++ {
		n := direntSize + len(l.name(to))
		if bytes+n > blockSize {
			break
		}
		bytes += n
	}
	return to, bytes
}

// measure returns the size of the whole, and where its last block begins. No block is empty.
func (l *listing) measure() (size int64, last int) {
	for {
		to, bytes := l.fill(last)
		if to == l.len() {
			return size + int64(bytes), last
		}
		size, last = size+blockSize, to
	}
}

// numbers has the numbers of the inodes that a listing names.
type numbers struct {
	entries      []uint32
	self, parent uint32
}

// put fills b with the entries from from to before to.
func (l *listing) put(b []byte, from, to int, n numbers) {
	at := (to - from) * direntSize
	for i := from; i < to; i++ {
		nid, kind, name := n.self, byte(typeDir), "."
		switch c := l.child(i); c {
		case -1:
		case -2:
			nid, name = n.parent, ".."
		default:
			e := &l.entries[c]
			nid, kind, name = n.entries[c], fileType(e.Mode), e.Name
		}
		d := b[(i-from)*direntSize:]
		le.PutUint64(d, uint64(nid))
		le.PutUint16(d[8:], uint16(at))
		d[10] = kind
		at += copy(b[at:], name)
	}
}
