package copied

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/eintr"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// A Copier copies trees to folders. One inotify group watches all of them, since a user may have
// only some hundred groups.
type Copier struct {
	mu      sync.Mutex
	group   int             // of inotify, without waiting; noGroup when it is closed
	watched map[int32]watch // of open roots, by number
	open    map[*Root]struct{}
}

const noGroup = -1

// New returns a Copier. An error means that reads cannot be watched.
func New() (*Copier, error) {
	group, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch files: %w; raise fs.inotify.max_user_instances", err)
	}
	return &Copier{group: group, watched: map[int32]watch{}, open: map[*Root]struct{}{}}, nil
}

// Close ends all watches. It may be called again, and c may be nil.
func (c *Copier) Close() error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.group == noGroup {
		return nil
	}
	for r := range c.open {
		r.blind = true
	}
	group := c.group
	c.group = noGroup
	return unix.Close(group)
}

// A Place is a folder for copies. It may have some of their folders already, and folders that are not
// among them, but nothing else.
type Place interface {
	Path() string
	Owner() folder.Owner
	// Has reports whether it has a folder at a path.
	Has(path string) bool
}

// Copy makes t in a Place, and watches it. It calls read, which may be nil, from Root.Reads. After an
// error the Place may have a part of t.
func (c *Copier) Copy(t *Tree, in Place, read func(path string, e tree.Entry)) (*Root, error) {
	dir := in.Path()
	top, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(top) }()
	r := &Root{copier: c, tree: t, dir: dir, read: read}
	if err := in.Owner().Act(func() (err error) { r.size, err = c.write(t, top, in); return err }); err != nil {
		return nil, fmt.Errorf("copy inputs: %w", err)
	}
	if err := c.watch(r); err != nil {
		r.Leave()
		return nil, err
	}
	return r, nil
}

// write makes the entries of t in a folder, whose own time it leaves to the kernel, as that of a
// mounted root. It returns how many bytes of the disk they take, each at least folder.EntryBytes.
func (c *Copier) write(t *Tree, top int, in Place) (size int64, err error) {
	for i := range t.entries {
		e := &t.entries[i]
		if e.Kind == tree.Dir && in.Has(e.path) {
			continue
		}
		if err := create(e, top); err != nil {
			return 0, &os.PathError{Op: "make", Path: e.path, Err: err}
		}
		e.content = nil
	}
	for i := range t.entries { // nothing changes the time of a directory any more
		e := &t.entries[i]
		if err := setTime(top, e.path, e.MTime); err != nil {
			return 0, err
		}
		var st unix.Stat_t
		if err := unix.Fstatat(top, e.path, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return 0, &os.PathError{Op: "stat", Path: e.path, Err: err}
		}
		e.inode = st.Ino
		size += folder.OnDisk(&st)
	}
	var st unix.Stat_t
	if err := unix.Fstat(top, &st); err != nil {
		return 0, err
	}
	t.root.inode = st.Ino
	return size, nil
}

// create makes an entry, but for its time.
func create(e *entry, top int) (err error) {
	switch e.Kind {
	case tree.Symlink:
		return unix.Symlinkat(e.Target, top, e.path)
	case tree.Dir:
		err = unix.Mkdirat(top, e.path, e.Perm)
	default:
		err = put(e, top)
	}
	if err == nil && e.Perm&^0o755 != 0 { // the umask may have taken some
		err = unix.Fchmodat(top, e.path, e.Perm, 0)
	}
	return err
}

// put makes a file with its content.
func put(e *entry, top int) error {
	// No child may have a program open for writing: it could not be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.Openat(top, e.path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, e.Perm)
	if err != nil {
		return err
	}
	_, err = eintr.Write(fd, e.content)
	if closed := unix.Close(fd); err == nil {
		err = closed
	}
	return err
}

// setTime sets the times of last access and change of the entry at path, not of what a symlink leads
// to.
func setTime(top int, path string, t time.Time) error {
	ts := unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
	if err := unix.UtimesNanoAt(top, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "set time of", Path: path, Err: err}
	}
	return nil
}
