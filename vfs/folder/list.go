package folder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
)

// listings are buffers for the names of a folder. A walk of a few empty folders follows each
// command: what package os adds to a listing would be most of it.
var listings = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// errEnd ends a listing.
var errEnd = errors.New("no more names are wanted")

// List calls each with the names that the open folder fd lists from here on, while it returns true.
func List(fd int, each func(name string) (more bool)) error {
	return Entries(fd, func(name string, _ byte) (more bool) { return each(name) })
}

// Entries calls each with the names that the open folder fd lists from here on, and their kinds
// (unix.DT_DIR, …), which not every file system knows, while it returns true.
func Entries(fd int, each func(name string, kind byte) (more bool)) error {
	err := list(fd, func(name string, kind byte) error {
		if each(name, kind) {
			return nil
		}
		return errEnd
	})
	if errors.Is(err, errEnd) {
		return nil
	}
	return err
}

// list is Entries that ends with the first error of each.
func list(fd int, each func(name string, kind byte) error) error {
	buffer := listings.Get().(*[8 << 10]byte)
	defer listings.Put(buffer)
	for {
		n, err := eintr.Ignore(func() (int, error) { return unix.Getdents(fd, buffer[:]) })
		if err != nil || n <= 0 {
			return err
		}
		if err := listed(buffer[:n], each); err != nil {
			return err
		}
	}
}

// listed calls each with the names and kinds in a listing by getdents64(2).
func listed(listing []byte, each func(name string, kind byte) error) error {
	const length, kind, name = 16, 18, 19 // where they are in an entry
	for len(listing) > name {
		n := int(binary.NativeEndian.Uint16(listing[length:]))
		text, _, _ := bytes.Cut(listing[name:n], []byte{0})
		is := listing[kind]
		listing = listing[n:]
		if s := string(text); s != "." && s != ".." {
			if err := each(s, is); err != nil {
				return err
			}
		}
	}
	return nil
}
