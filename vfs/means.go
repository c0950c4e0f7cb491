package vfs

// means is how inputs get to where actions see them on this machine.
type means uint8

const (
	fusePassthrough means = iota // FUSE and an overlay, and the kernel reads blobs itself
	fuseCached                   // the same, and this process reads them
	overLinks                    // hard links below an overlay
	bareLinks                    // hard links alone
)

func (m means) method() Method {
	if m == fusePassthrough || m == fuseCached {
		return FUSE
	}
	return HardLink
}

// overlay reports whether roots have an overlay; with FUSE always.
func (m means) overlay() bool { return m != bareLinks }
