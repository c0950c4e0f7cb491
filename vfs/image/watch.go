package image

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/mounts"
)

const (
	// watchPeriod is how long opens may wait in the kernel. Stats and Close fetch them at once.
	watchPeriod = 50 * time.Millisecond
	// watchBuffer is how much is read from the kernel at once: some hundred
	// events, each of which has a descriptor.
	watchBuffer = 8 << 10
	// mostEvents is how many events of one root may be handled in a countPeriod without a pause. If
	// a command opens files faster than they are handled, all others would have to wait for its
	// end, and the kernel would hold more and more events. So it may hold that many of all roots at
	// the end of a countPeriod, too: else the root with the most is left.
	mostEvents  = 1 << 16
	countPeriod = time.Second
	// atHandleFID asks for a file handle that only names, see name_to_handle_at(2).
	atHandleFID = 0x200
	// eventHead is the size of struct fanotify_event_metadata, see fanotify(7).
	eventHead = 24

	groupFlags = unix.FAN_CLASS_NOTIF | unix.FAN_CLOEXEC | unix.FAN_NONBLOCK | unix.FAN_UNLIMITED_QUEUE | unix.FAN_UNLIMITED_MARKS
	watchMask  = unix.FAN_OPEN | unix.FAN_ONDIR
	// fileFlags prevent waiting for a file that a command has a lease of.
	fileFlags = unix.O_RDONLY | unix.O_CLOEXEC | unix.O_LARGEFILE | unix.O_NONBLOCK
)

// watcher learns from fanotify which files are opened in roots with metadata images, because these
// opens do not reach this process. One group serves all roots, since a user may have only some
// hundred of them.
type watcher struct {
	fd    int
	bytes int // that are read at once
	// turn holds a token, which belongs to the goroutine that takes events from the kernel and
	// passes them on: after drain all earlier opens have been passed on.
	turn chan struct{}
	stop chan struct{}
	done chan struct{}
	// thread is that of the holder of the turn. The kernel opens files for it that others have
	// opened, so roots must not make it wait.
	thread atomic.Uint32

	// taken counts the events of each root since the kernel had none, or since the countPeriod
	// began. The holder of the turn owns both.
	taken map[*View]int
	since time.Time
	now   func() time.Time

	mu    sync.Mutex
	roots map[fsid]*View    // watched views, by the id of their overlay
	alone map[imageID]*View // those of them with a grown image, by the id of that
	known map[uint64]origin // where files with that device come from, as far as seen
}

// An origin is an image in a watched root. Without xino, overlayfs gives the files of each file
// system below it a device of their own, which no other mount has meanwhile, and the inode numbers
// that they have there, also after the action has written to them. To ask for these is much cheaper
// than for a file handle.
type origin struct {
	root  *View
	image imageID
}

// newWatcher opens the group and starts to read it. Only close ends that.
func newWatcher() (*watcher, error) {
	buffer := watchBuffer
	fd, err := unix.FanotifyInit(groupFlags|unix.FAN_REPORT_FD_ERROR, fileFlags)
	if errors.Is(err, unix.EINVAL) { // Linux before 6.13 reports a file that cannot be opened only if it is the first that is read
		buffer = eventHead
		fd, err = unix.FanotifyInit(groupFlags, fileFlags)
	}
	if err != nil {
		return nil, &mounts.Error{What: "fanotify", Err: err}
	}
	w := &watcher{
		fd:    fd,
		bytes: buffer,
		turn:  make(chan struct{}, 1),
		stop:  make(chan struct{}),
		done:  make(chan struct{}),
		roots: map[fsid]*View{},
		alone: map[imageID]*View{},
		known: map[uint64]origin{},
		taken: map[*View]int{},
		now:   time.Now,
	}
	w.turn <- struct{}{}
	go w.run()
	return w, nil
}

// run reads opens from time to time, so that hooks get them and the kernel need not keep them.
func (w *watcher) run() {
	defer close(w.done)
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
			if w.busy() {
				w.drain()
			}
		}
	}
}

func (w *watcher) busy() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.roots) > 0
}

// close ends the group. No root may be watched any more.
func (w *watcher) close() {
	close(w.stop)
	<-w.done
	_ = unix.Close(w.fd)
}

// watch reports opens in the overlay at path to r from now on, in every mount namespace. The mark
// ends with the mount.
func (w *watcher) watch(r *View, path string) error {
	id, err := fsidOf(unix.Statfs, path)
	if err != nil {
		return &mounts.Error{What: "fanotify", Err: fmt.Errorf("statfs %s: %w", path, err)}
	}
	r.overlay, r.path = id, path
	if r.showsRoot() {
		top, _, err := unix.NameToHandleAt(unix.AT_FDCWD, path, atHandleFID)
		if err != nil {
			return &mounts.Error{What: "fanotify", Err: fmt.Errorf("file handle of %s: %w", path, err)}
		}
		r.top = top.Bytes()
	}
	w.mu.Lock()
	_, taken := w.roots[id]
	if !taken {
		w.roots[id] = r
		if only := r.grownImage(); only != nil {
			w.alone[only.id] = r
		}
	}
	w.mu.Unlock()
	if taken {
		return &mounts.Error{What: "fanotify", Err: fmt.Errorf("two overlays have the file system id %x", id)}
	}
	err = unix.FanotifyMark(w.fd, unix.FAN_MARK_ADD|unix.FAN_MARK_FILESYSTEM, watchMask, unix.AT_FDCWD, path)
	if err != nil {
		w.forget(r)
		return &mounts.Error{What: "fanotify", Err: fmt.Errorf("watch %s: %w", path, err)}
	}
	r.watch.Store(watched)
	return nil
}

// forget ends the reports about r after the pending ones.
func (w *watcher) forget(r *View) {
	w.drain()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.roots, r.overlay)
	if only := r.grownImage(); only != nil {
		delete(w.alone, only.id)
	}
	maps.DeleteFunc(w.known, func(_ uint64, o origin) bool { return o.root == r })
}

// is reports whether the kernel uses this thread to open files again that others have opened.
func (w *watcher) is(thread uint32) bool { return w != nil && thread != 0 && w.thread.Load() == thread }

// drain hands on all events of opens that have returned by now.
func (w *watcher) drain() {
	<-w.turn
	runtime.LockOSThread()
	w.thread.Store(uint32(unix.Gettid()))
	defer func() {
		clear(w.taken)
		w.thread.Store(0)
		runtime.UnlockOSThread()
		w.turn <- struct{}{}
	}()
	var buf [watchBuffer]byte
	for {
		// EAGAIN alone may be about a file, too.
		due, err := unix.IoctlGetInt(w.fd, unix.TIOCINQ)
		if err == nil && due == 0 {
			return
		}
		w.period(due / eventHead)
		n, err := unix.Read(w.fd, buf[:w.bytes])
		if err == nil && n == 0 {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			w.lost() // one event, whose file could not be opened again
		}
		for b := buf[:max(n, 0)]; len(b) >= eventHead; {
			size := int(binary.NativeEndian.Uint32(b))
			if size < eventHead || size > len(b) {
				break
			}
			if fd := int(int32(binary.NativeEndian.Uint32(b[16:]))); fd >= 0 {
				w.handOn(fd)
				_ = unix.Close(fd)
			} else {
				w.lost()
			}
			b = b[size:]
		}
	}
}

// handOn reports the opened file to its root, if it is from an image.
func (w *watcher) handOn(fd int) {
	dev, inode, isFile := inodeOf(fd)
	if isFile {
		if from, ok := w.origin(dev); ok {
			if w.count(from.root) {
				from.root.opened(from.image, inode)
			}
			return
		}
	}
	var img imageID
	var nid uint64
	var ok bool
	handle, _, err := unix.NameToHandleAt(fd, "", unix.AT_EMPTY_PATH|atHandleFID)
	if err == nil {
		img, nid, ok = parseHandle(handle.Type(), handle.Bytes())
	}
	r := w.viewOf(fd, img)
	switch {
	case r == nil || !w.count(r):
	case err != nil:
		r.blind.Store(true)
	case ok:
		r.opened(img, nid)
		if isFile && inode == nid {
			w.know(dev, origin{r, img})
		}
	default:
		r.openedTop(handle.Bytes())
	}
}

// inodeOf returns the device and inode number of an open file, without a question to a file system
// that this process serves.
func inodeOf(fd int) (dev, inode uint64, isFile bool) {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st)
	isFile = err == nil && st.Mask&unix.STATX_INO != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG
	return unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino, isFile
}

// know remembers an origin, unless its root was forgotten meanwhile: later another one may have the
// device.
func (w *watcher) know(dev uint64, o origin) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.roots[o.root.overlay] == o.root {
		w.known[dev] = o
	}
}

func (w *watcher) origin(dev uint64) (origin, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, ok := w.known[dev]
	return o, ok
}

// viewOf returns the root in which the file was opened, which may be one of that image; nil: it is
// not watched.
func (w *watcher) viewOf(fd int, img imageID) *View {
	w.mu.Lock()
	r := w.alone[img]
	w.mu.Unlock()
	if r != nil {
		return r
	}
	id, err := fsidOf(unix.Fstatfs, fd)
	if err != nil {
		w.lost()
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.roots[id]
}

// count counts an event of a root. False: the root has had too many.
func (w *watcher) count(r *View) bool {
	if w.taken[r]++; w.taken[r] > mostEvents {
		w.leave(r)
		return false
	}
	return true
}

// period starts a new count at the end of a countPeriod, when the kernel holds that many events.
func (w *watcher) period(due int) {
	now := w.now()
	if now.Sub(w.since) < countPeriod {
		return
	}
	w.since = now
	if due > mostEvents {
		var most *View
		for r, n := range w.taken {
			if most == nil || n > w.taken[most] {
				most = r
			}
		}
		if most != nil {
			w.leave(most)
		}
	}
	clear(w.taken)
}

// leave ends the kernel's events for a root: from then on opens there are unknown.
func (w *watcher) leave(r *View) {
	r.blind.Store(true)
	if r.left {
		return
	}
	r.left = true
	// It fails if the root is being unmounted, and then there are no more events.
	_ = unix.FanotifyMark(w.fd, unix.FAN_MARK_REMOVE|unix.FAN_MARK_FILESYSTEM, watchMask, unix.AT_FDCWD, r.path)
}

// lost records that an unknown file was opened.
func (w *watcher) lost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.roots {
		r.blind.Store(true)
	}
}

// fsid is the id of a mounted file system in statfs(2). An overlay with uuid=on has its own.
type fsid [2]int32

func fsidOf[T any](statfs func(T, *unix.Statfs_t) error, of T) (fsid, error) {
	var st unix.Statfs_t
	err := statfs(of, &st)
	return fsid(st.Fsid.Val), err
}

// Where things are in the file handle that overlayfs makes of one of the file
// system below it (struct ovl_fh in fs/overlayfs/overlayfs.h in the kernel's
// source): three bytes of padding, version, magic number, length, flags, type of
// the inner handle, the 16 bytes of the UUID, the inner handle. That of EROFS is
// the inode number, the upper half first.
const (
	overlayHandle = 0xf8
	overlayMagic  = 0xfb
	erofsHandle   = 0x81
	handleUUID    = 8
	handleInode   = handleUUID + 16
	handleBytes   = handleInode + 8
)

// parseHandle returns the inode of an image that a file handle is about. It
// stays the same when the action writes to the file or moves it.
func parseHandle(kind int32, h []byte) (img imageID, nid uint64, ok bool) {
	if kind != overlayHandle || len(h) < handleBytes || h[4] != overlayMagic || h[7] != erofsHandle {
		return img, 0, false
	}
	copy(img[:], h[handleUUID:])
	high := binary.NativeEndian.Uint32(h[handleInode:])
	low := binary.NativeEndian.Uint32(h[handleInode+4:])
	return img, uint64(high)<<32 | uint64(low), true
}
