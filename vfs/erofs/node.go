package erofs

// A Node is an inode of an image.
type Node struct {
	Path     string // relative to the root; the root's own is empty
	Mode     uint32 // type and permission bits, as in unix.Stat_t
	Size     int64  // of a file in bytes
	Redirect string // of a file with data: Entry.Redirect
}

// redirect returns the attribute of that name of a file, as putXattrs writes it.
func (d *dirInode) redirect() string {
	b := d.behind
	at := xattrHeaderSize + align4(xattrEntrySize+len(metacopyName))
	if fileType(d.mode) != typeFile || d.xattrs == 0 || len(b) < at+xattrEntrySize+len(redirectName) {
		return ""
	}
	b = b[at:]
	n := int(le.Uint16(b[2:]))
	b = b[xattrEntrySize:]
	if string(b[:len(redirectName)]) != redirectName || len(b) < len(redirectName)+n {
		return ""
	}
	return string(b[len(redirectName) : len(redirectName)+n])
}
