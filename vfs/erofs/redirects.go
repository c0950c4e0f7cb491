package erofs

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// errNoData is the damage of the image that Redirects finds.
var errNoData = errors.New("a file without data in a damaged image")

// Redirects calls found with the Entry.Redirect of each file that has data. It reads a block for
// each file and directory. If the image is damaged it ends with an error, or has found other files
// than there were.
func (m *Image) Redirects(found func(redirect string)) error {
	buf := make([]byte, 3*blockSize)
	inode, block, file := buf[:blockSize], buf[blockSize:2*blockSize], buf[2*blockSize:]
	for dirs := []uint64{rootNID}; len(dirs) > 0; {
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		d, err := m.readInode(at, inode)
		if err == nil && (d.mode&unix.S_IFMT != unix.S_IFDIR || d.size < 0) {
			err = ErrNotFound
		}
		for i := int64(0); err == nil && i < blocksOf(d.size); i++ {
			var names []byte
			if names, err = m.namesOf(&d, i, block); err != nil {
				break
			}
			err = eachName(names, func(nid uint64, kind byte, _ []byte) error {
				switch {
				case nid <= at: // a directory lies before its entries, so this ends
					return ErrNotFound
				case kind == typeDir:
					dirs = append(dirs, nid)
				case kind == typeFile:
					return m.redirectOf(nid, file, found)
				}
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("files of directory %d: %w", at, err)
		}
	}
	return nil
}

// redirectOf calls found with the redirect of a file, if it has data; b is scratch space for a
// block.
func (m *Image) redirectOf(nid uint64, b []byte, found func(string)) error {
	d, err := m.readInode(nid, b)
	if err != nil || d.size == 0 && d.xattrs == 0 {
		return err
	}
	redirect := d.redirect()
	if redirect == "" {
		return errNoData
	}
	found(redirect)
	return nil
}
