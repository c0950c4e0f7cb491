package link

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// copies holds the files that roots have links to. They are copies of blobs (reflinks, if the file
// system supports them), not the blobs: a link shows the mode and the times of its inode, which are
// the input's and not the store's; and a command that writes through a link does not reach the
// store. Beyond maxBytes the least recently used copy is removed, unless a root uses it.
type copies struct {
	shards   [numShards]string // folders
	maxBytes int64
	bare     bool
	damaged  func(d digest.Digest, file string)
	log      *zap.Logger

	mu     sync.Mutex // guards the following; no I/O under it
	serial uint64
	byKey  map[fileKey]*sharedFile
	byIno  map[uint64]*sharedFile    // those with a name in shards
	making map[fileKey]chan struct{} // closed when the copy is made, or could not be
	// idle are the *sharedFile without users, the one used last in front. It is no bounded.Latest, as
	// each root takes and returns all its copies at once: each would cost two changes of one more map
	// by fileKey, and those in use count for maxBytes, too.
	idle  list.List
	bytes int64 // of the copies that have a name in shards
}

// fileKey identifies a copy. No root has two links to one copy.
type fileKey struct {
	digest digest.Digest
	perm   uint32
	sec    int64 // of the modification time
	nsec   int32
	nth    int // counts equal ones; 0 for the first
}

// keyOf is the key of the first copy.
func keyOf(e *tree.Entry) fileKey {
	return fileKey{digest: e.Digest, perm: e.Perm, sec: e.MTime.Unix(), nsec: int32(e.MTime.Nanosecond())}
}

// numShards is the number of folders with copies, so that writers do not wait for each other in one
// folder.
const numShards = 64

// topDirectory is FS_TOPDIR_FL (linux/fs.h): the entries of a folder are unrelated.
const topDirectory = 0x00020000

// spreadFolders makes ext4 spread the folders in dir over the disk. By default ext4 puts a file
// near its folder and a folder near its parent, and before it uses an inode there it looks at each
// one nearby that was freed in the last minutes. Beside the remains of roots, making a file took
// 600 µs because of that, and 20 µs elsewhere.
func spreadFolders(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	if flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|topDirectory) // other file systems do not support it
	}
}

func newCopies(o Options) (*copies, error) {
	dir := o.Dir
	c := &copies{
		maxBytes: o.MaxBytes, bare: o.Bare, damaged: o.Damaged, log: o.Log,
		byKey: map[fileKey]*sharedFile{}, byIno: map[uint64]*sharedFile{}, making: map[fileKey]chan struct{}{},
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	spreadFolders(dir)
	// ext4 places folders by their names; the places of the last run are full of inodes that are
	// being freed.
	run := strconv.FormatUint(uint64(rand.Uint32()), 36)
	for i := range c.shards {
		c.shards[i] = filepath.Join(dir, run+"-"+strconv.Itoa(i))
		if err := os.Mkdir(c.shards[i], 0o700); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// lacks reports whether a copy would have to be made.
func (c *copies) lacks(k fileKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[k] == nil
}

// acquire returns an intact copy, made from the blob if there is none, and counts a
// user of it. However many ask, it is made once.
func (c *copies) acquire(ctx context.Context, k fileKey, from *blob) (*sharedFile, error) {
	for {
		l, wait, mine := c.take(k)
		switch {
		case l != nil && l.intact():
			return l, nil
		case l != nil:
			c.spoil(l)
			c.release([]*sharedFile{l})
		case mine != nil:
			l, err := c.make(ctx, k, from)
			c.made(k, l)
			close(mine)
			return l, err
		default:
			select {
			case <-wait:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
}

// take returns the copy, or a channel that is closed when another caller has made it, or one that
// the caller must close when it has made the copy.
func (c *copies) take(k fileKey) (l *sharedFile, wait <-chan struct{}, mine chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.byKey[k]; l != nil {
		if l.idle != nil {
			c.idle.Remove(l.idle)
			l.idle = nil
		}
		l.users++
		return l, nil, nil
	}
	if wait, ok := c.making[k]; ok {
		return nil, wait, nil
	}
	mine = make(chan struct{})
	c.making[k] = mine
	return nil, nil, mine
}

// made adds a copy, or with nil reports that there is none.
func (c *copies) made(k fileKey, l *sharedFile) {
	c.mu.Lock()
	delete(c.making, k)
	var out []*sharedFile
	if l != nil {
		c.byKey[k], c.byIno[l.as.number] = l, l
		c.bytes += k.digest.SizeBytes()
		out = c.evictLocked()
	}
	c.mu.Unlock()
	c.remove(out)
}

// release takes one user of each of ls away.
func (c *copies) release(ls []*sharedFile) {
	c.mu.Lock()
	var out []*sharedFile
	for _, l := range ls {
		l.users--
		switch {
		case l.users > 0:
		case l.retired:
			c.forgetLocked(l)
			out = append(out, l)
		default:
			l.idle = c.idle.PushFront(l)
		}
	}
	out = append(out, c.evictLocked()...)
	c.mu.Unlock()
	c.remove(out)
}

func (c *copies) evictLocked() (out []*sharedFile) {
	for c.bytes > c.maxBytes && c.idle.Len() > 0 {
		l := c.idle.Remove(c.idle.Back()).(*sharedFile)
		l.idle = nil
		delete(c.byKey, l.key)
		c.forgetLocked(l)
		out = append(out, l)
	}
	return out
}

// forgetLocked schedules the removal of l's name.
func (c *copies) forgetLocked(l *sharedFile) {
	c.bytes -= l.key.digest.SizeBytes()
	delete(c.byIno, l.as.number)
}

// unlink removes a name from a folder of links.
func (c *copies) unlink(dir int, name string) error {
	remove := func() error { return unix.Unlinkat(dir, name, 0) }
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink < 2 {
		return remove()
	}
	c.mu.Lock()
	l := c.byIno[st.Ino]
	c.mu.Unlock()
	if l == nil {
		return remove()
	}
	return l.ours(remove)
}

// overfull reports whether the copies in use take more than all may.
func (c *copies) overfull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes > c.maxBytes
}

// retire stops new uses of l. It reports whether l was in use before.
func (c *copies) retire(l *sharedFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.retired {
		return false
	}
	l.retired = true
	delete(c.byKey, l.key)
	return true
}

// spoil retires a copy that has changed. If commands see the links directly, a write that the
// kernel recorded was a command's; otherwise a disk or another process is the cause.
func (c *copies) spoil(l *sharedFile) {
	switch {
	case !c.retire(l):
	case c.bare && l.strangers() > 0:
		c.log.Warn("a command changed an input that other roots share; the copy is dropped",
			zap.Stringer("digest", l.key.digest), zap.String("file", l.path))
	default:
		c.damaged(l.key.digest, l.path)
	}
}

func (c *copies) remove(ls []*sharedFile) {
	for _, l := range ls {
		if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.log.Error("cannot remove a linked file", zap.Error(err))
		}
	}
}

// make writes a copy, which has one user.
func (c *copies) make(ctx context.Context, k fileKey, from *blob) (*sharedFile, error) {
	c.mu.Lock()
	c.serial++
	n := c.serial
	c.mu.Unlock()
	l := &sharedFile{key: k, users: 1, path: c.shards[n%numShards] + "/" + strconv.FormatUint(n, 10)}
	l.said.Right(time.Now())
	st, err := from.copyTo(ctx, l.path, k)
	if err != nil {
		_ = os.Remove(l.path)
		return nil, err
	}
	l.as, l.changed = inodeOf(&st), st.Ctim
	return l, nil
}
