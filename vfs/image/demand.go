package image

// growAfter is how many directories must be requested before the others are written ahead: so many
// in the order in which they lie, or so many that no more than growPart times as many are known.
const growAfter, growPart = 16, 4

// A demand is what the kernel has requested of a grown image. It tells a command that reads most of
// the tree, or of a part of it, from one that reads files here and there.
type demand struct {
	all     int     // requests
	first   int     // of these for directories that were not written
	inOrder int     // of these that came in order, less those that did not
	latest  *extent // of the last of these
}

// note notes a request, and reports whether it is the first one for that directory. Next is the one
// that a reader of the whole tree comes to; nil: there is none.
func (d *demand) note(p, next *extent) bool {
	d.all++
	if p.requested || p.nids != nil {
		return false
	}
	p.requested = true
	d.first++
	if follows := d.latest != nil && p.at == d.latest.at+d.latest.bytes; follows || p == next {
		d.inOrder++
	} else {
		d.inOrder = max(d.inOrder-1, 0)
	}
	d.latest = p
	return true
}

// isForAll reports whether the others of so many known directories are worth writing ahead.
func (d *demand) isForAll(known int) bool {
	return d.inOrder >= growAfter || d.first >= growAfter && growPart*d.first >= known
}
