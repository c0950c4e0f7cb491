package folder

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// MaxBytes limits the size of an empty folder that is used again: a folder that had many files stays
// large on some file systems, and slow to list.
const MaxBytes = 4096

// A Folder is an empty folder for an action to write to. If an action leaves it untouched, the next
// action can reuse it. ext4 checks each recently removed file and folder whenever it makes a new
// one. Without reuse, a worker that makes a dozen for every short action spends most of its time
// there.
type Folder struct {
	path  string
	mode  uint32
	owner Owner
	ctime unix.Timespec // when its attributes were last changed, by us
}

// Make makes a folder with these permission bits for that owner. It must not exist.
func Make(path string, mode uint32, owner Owner) (*Folder, error) {
	if err := os.Mkdir(path, 0o700); err != nil {
		return nil, err
	}
	f := &Folder{path: path, mode: mode, owner: owner}
	if err := f.own(); err != nil {
		return nil, errors.Join(fmt.Errorf("make folder: %w", err), os.Remove(path))
	}
	return f, nil
}

func (f *Folder) own() error {
	if err := f.owner.Give(f.path); err != nil {
		return err
	}
	if err := unix.Chmod(f.path, f.mode); err != nil { // Mkdir's mode goes through the umask
		return &os.PathError{Op: "chmod", Path: f.path, Err: err}
	}
	return f.Renew()
}

// Renew declares the present state of the folder the original one.
func (f *Folder) Renew() error {
	var st unix.Stat_t
	if err := unix.Lstat(f.path, &st); err != nil {
		return &os.PathError{Op: "stat", Path: f.path, Err: err}
	}
	f.ctime = st.Ctim
	return nil
}

// Path returns the path of the folder.
func (f *Folder) Path() string { return f.path }

// Owner returns the owner of the folder.
func (f *Folder) Owner() Owner { return f.owner }

// Untouched reports whether the folder is in its original state: no process has ever created a file
// in it or changed an attribute. No process may be using it any more. If in doubt, it returns
// false.
func (f *Folder) Untouched() bool {
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_NOATIME|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Ctim != f.ctime || st.Mode != unix.S_IFDIR|f.mode || st.Size > MaxBytes ||
		(Owner{UID: st.Uid, GID: st.Gid}) != f.owner {
		return false
	}
	// The clock of older kernels ticks every few milliseconds: only this detects attributes from
	// the tick in which the folder was made.
	if n, err := unix.Flistxattr(fd, nil); err != nil || n > 0 {
		return false
	}
	var entries [512]byte
	n, err := unix.Getdents(fd, entries[:])
	if err != nil {
		return false
	}
	_, files, _ := unix.ParseDirent(entries[:n], 1, nil)
	return files == 0
}
