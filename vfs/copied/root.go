package copied

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

const (
	// watchFlags ask for one event of each watch: the first open, wherever the file is by then. So
	// a root has few events, and commands cannot fill the queue.
	watchFlags = unix.IN_OPEN | unix.IN_ONESHOT
	// eventHead is the size of struct inotify_event, see inotify(7), without the name.
	eventHead    = 16
	eventsAtOnce = 4 << 10
)

// A Root has the copies of one tree.
type Root struct {
	copier *Copier
	tree   *Tree
	dir    string
	size   int64
	read   func(path string, e tree.Entry)

	// Guarded by Copier.mu.
	watches []int32  // their numbers, also of those that have ended
	first   []*entry // that were opened, and not reported yet
	blind   bool     // others may have been, too
	aside   int      // calls of Aside
	again   []*entry // directories that were opened meanwhile
}

// A watch is for the first open of an entry.
type watch struct {
	root  *Root
	entry *entry
}

// Bytes returns how many bytes of the disk the copies took at first, each at least
// folder.EntryBytes.
func (r *Root) Bytes() int64 { return r.size }

// watch starts to watch r. Nobody opens its files yet.
func (c *Copier) watch(r *Root) error {
	c.mu.Lock()
	c.open[r] = struct{}{}
	c.mu.Unlock()
	if err := c.watchEntry(r, &r.tree.root, r.dir, unix.IN_DONT_FOLLOW); err != nil {
		return err
	}
	for i := range r.tree.entries {
		e := &r.tree.entries[i]
		if e.Kind == tree.Symlink { // to follow one is no open
			continue
		}
		if err := c.watchEntry(r, e, r.dir+"/"+e.path, unix.IN_DONT_FOLLOW); err != nil {
			return err
		}
	}
	return nil
}

// watchEntry watches the file or folder at path for e. The lock is held, so that no event comes
// before the number is known.
func (c *Copier) watchEntry(r *Root, e *entry, path string, flags uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	number, err := unix.InotifyAddWatch(c.group, path, watchFlags|flags)
	if errors.Is(err, unix.ENOSPC) {
		return fmt.Errorf("watch input %q: %w; raise fs.inotify.max_user_watches", e.path, err)
	}
	if err != nil {
		return fmt.Errorf("watch input %q: %w", e.path, err)
	}
	if len(r.watches) > 2*len(r.tree.entries) { // most have ended
		r.watches = slices.DeleteFunc(r.watches, func(n int32) bool { return c.watched[n].root != r })
	}
	c.watched[int32(number)] = watch{r, e}
	r.watches = append(r.watches, int32(number))
	return nil
}

// Reads reports the first opens until now to the hook, in their order, and returns whether it has
// reported all.
func (r *Root) Reads() (all bool) {
	c := r.copier
	c.mu.Lock()
	c.drainLocked()
	first := r.first
	r.first, all = nil, !r.blind
	c.mu.Unlock()
	if r.read != nil {
		for _, e := range first {
			r.read(e.path, e.Entry)
		}
	}
	return all
}

// Aside calls f, which may open directories of r on behalf of the worker: they do not count as
// opened. If the action opens one at that moment, this may be missed.
func (r *Root) Aside(f func()) {
	c := r.copier
	c.mu.Lock()
	c.drainLocked()
	r.aside++
	c.mu.Unlock()
	f()
	c.mu.Lock()
	c.drainLocked()
	r.aside--
	again := r.again
	r.again = nil
	c.mu.Unlock()
	for _, e := range again {
		if err := r.rewatch(e); err != nil {
			c.mu.Lock()
			r.first = append(r.first, e) // it is not there any more, and may have been opened
			c.mu.Unlock()
		}
	}
}

// errMoved means that another folder is at the path of a directory.
var errMoved = errors.New("it was moved")

// rewatch watches a directory once more. The action may have changed whatever is at its path.
func (r *Root) rewatch(e *entry) error {
	top, err := unix.Open(r.dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(top) }()
	at := top
	if e.path != "" {
		if at, err = folder.OpenBelow(top, e.path, unix.O_PATH); err != nil {
			return err
		}
		defer func() { _ = unix.Close(at) }()
	}
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return err
	}
	if st.Ino != e.inode { // maybe that of another input, which has a watch of its own
		return errMoved
	}
	return r.copier.watchEntry(r, e, fmt.Sprint("/proc/self/fd/", at), 0)
}

// Leave ends the watches of r, also of files that the action has moved or linked elsewhere.
func (r *Root) Leave() {
	c := r.copier
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drainLocked()
	delete(c.open, r)
	r.first, r.again, r.blind = nil, nil, true
	for _, number := range r.watches {
		if c.watched[number].root == r {
			delete(c.watched, number)
			_, _ = unix.InotifyRmWatch(c.group, uint32(number)) // it may have ended by itself
		}
	}
	c.drainLocked()
}

// drainLocked takes all events from the kernel, without waiting.
func (c *Copier) drainLocked() {
	var buf [eventsAtOnce]byte
	for c.group != noGroup {
		n, err := unix.Read(c.group, buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 { // no more
			return
		}
		for b := buf[:n]; len(b) >= eventHead; {
			number, mask := int32(binary.NativeEndian.Uint32(b)), binary.NativeEndian.Uint32(b[4:])
			c.noteLocked(number, mask)
			b = b[min(len(b), eventHead+int(binary.NativeEndian.Uint32(b[12:]))):]
		}
	}
}

// noteLocked notes an event.
func (c *Copier) noteLocked(number int32, mask uint32) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		for r := range c.open {
			r.blind = true
		}
		return
	}
	w, known := c.watched[number]
	if !known {
		return
	}
	delete(c.watched, number) // it has ended, by its event or as the file is gone
	switch r := w.root; {
	case mask&unix.IN_OPEN == 0:
	case r.aside > 0 && w.entry.Kind == tree.Dir:
		r.again = append(r.again, w.entry)
	default:
		r.first = append(r.first, w.entry)
	}
}
