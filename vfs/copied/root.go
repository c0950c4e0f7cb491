package copied

import (
	"encoding/binary"
	"maps"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/tree"
)

const (
	// watchFlags ask for one event of each watch: the first open, wherever the file is by then. So
	// a root has at most two events for each entry, and commands cannot fill the queue.
	watchFlags = unix.IN_OPEN | unix.IN_ONESHOT | unix.IN_DONT_FOLLOW
	// eventHead is the size of struct inotify_event, see inotify(7), without the name.
	eventHead    = 16
	eventsAtOnce = 4 << 10
)

// A Root has the copies of one tree.
type Root struct {
	copier *Copier
	read   func(path string, e tree.Entry)

	// Guarded by Copier.mu.
	first []*entry // that were opened, and not reported yet
	blind bool     // others may have been, too
}

// A watch is for the first open of an entry.
type watch struct {
	root  *Root
	entry *entry
}

// topEntry is the root itself.
var topEntry = entry{Entry: tree.Entry{Kind: tree.Dir}}

// watch starts to watch r, whose entries are in the folder dir. Nobody opens them yet.
func (c *Copier) watch(r *Root, t *Tree, dir string) {
	watched := make(map[int32]watch, len(t.entries)+1)
	add := func(e *entry, path string) {
		number, err := unix.InotifyAddWatch(c.group, path, watchFlags)
		if err != nil { // such as too many watches of this user
			r.blind = true
			return
		}
		watched[int32(number)] = watch{r, e}
	}
	add(&topEntry, dir)
	for i := range t.entries {
		if e := &t.entries[i]; e.Kind != tree.Symlink { // to follow one is no open
			e.content = nil
			add(e, dir+"/"+e.path)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[r] = struct{}{}
	maps.Copy(c.watched, watched)
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
	for _, e := range first {
		r.read(e.path, e.Entry)
	}
	return all
}

// Leave ends the reports.
func (r *Root) Leave() {
	c := r.copier
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, r)
	r.first, r.blind = nil, true
}

// drainLocked takes all events from the kernel.
func (c *Copier) drainLocked() {
	var buf [eventsAtOnce]byte
	for {
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
	w, known := c.watched[number]
	switch {
	case mask&unix.IN_Q_OVERFLOW != 0:
		for r := range c.open {
			r.blind = true
		}
	case mask&unix.IN_IGNORED != 0: // it has ended, by its event or as the file is gone
		delete(c.watched, number)
	case known:
		if _, open := c.open[w.root]; open {
			w.root.first = append(w.root.first, w.entry)
		}
	}
}
