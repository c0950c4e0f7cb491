package erofs

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// ErrTooLarge is the error of Write if the image would exceed Options.MaxBytes.
var ErrTooLarge = errors.New("image too large")

// formatBytes is the most that inode numbers of 32 bits can name.
const formatBytes = math.MaxUint32 * slotSize

// An Entry is a file, a directory or a symlink of a tree to be written. Write does not change it.
type Entry struct {
	Name string // 1 to 255 bytes without "/" and NUL, neither "." nor ".."; ignored for the root
	Mode uint32 // S_IFREG, S_IFDIR or S_IFLNK and permission bits, as in unix.Stat_t

	MTime time.Time // the zero time is that of the year 1

	Size     int64  // of a file, in bytes; ignored for others
	Redirect string // of a file with Size > 0: absolute path of its data in the data-only layer
	Target   string // of a symlink: 1 to 4,095 bytes without NUL

	Entries []Entry // of a directory, in strict byte order of names
	// Opaque directories hide those at the same path in the layers of an overlayfs below the image.
	// It is ignored for others.
	Opaque bool
}

// Options of an image. Zero is valid.
type Options struct {
	// UUID becomes the file system's. Kernels build f_fsid and overlayfs its file handles from it.
	UUID [16]byte
	// Epoch is a time that many entries have: their inodes are smaller. Zero is 1970-01-01.
	Epoch time.Time
	// UID and GID own everything.
	UID, GID uint32
	// MaxBytes limits the image. Zero is the maximum of the format, 128 GiB.
	MaxBytes int64
}

func (o Options) validate() (Options, error) {
	if o.MaxBytes < 0 {
		return o, fmt.Errorf("negative MaxBytes %d", o.MaxBytes)
	}
	if o.MaxBytes == 0 || o.MaxBytes > formatBytes {
		o.MaxBytes = formatBytes
	}
	if o.Epoch.IsZero() {
		o.Epoch = time.Unix(0, 0)
	}
	return o, nil
}

// Write writes the image of the tree below root, front to back, and returns its size, a multiple
// of 4,096. The same tree and options give the same bytes. Entries are checked before the first
// byte is written; an error of an entry names its path, one of w is returned wrapped.
//
// Memory is bounded by some 100 bytes for each directory and 4 for each other entry.
func Write(w io.Writer, root *Entry, o Options) (int64, error) {
	o, err := o.validate()
	if err != nil {
		return 0, fmt.Errorf("write image: %w", err)
	}
	l := newLayout(o)
	if err := l.add(root); err != nil {
		return 0, fmt.Errorf("write image: %w", err)
	}
	out := newOutput(w)
	l.write(out)
	if err := out.flush(); err != nil {
		return out.at(), fmt.Errorf("write image: %w", err)
	}
	return out.at(), nil
}
