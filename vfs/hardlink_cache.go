package vfs

import (
	"container/list"
	"context"
	"errors"
	"fmt"
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

// linkCache holds the files that roots have links to. They are copies of blobs
// (reflinks, where the file system can), not the blobs: a link shows the mode and
// the times of its inode, which are the input's and not the store's; and a
// command that writes through a link does not reach the store. Beyond maxBytes
// the copy unused for longest goes; one that a root uses does not.
type linkCache struct {
	dir      string
	maxBytes int64
	log      *zap.Logger

	mu     sync.Mutex // guards what follows; no I/O under it
	serial uint64
	byKey  map[linkKey]*sharedFile
	making map[linkKey]chan struct{} // closed when the copy is made, or could not be
	idle   list.List                 // of *sharedFile without users, the one used last in front
	bytes  int64                     // of the copies that have a name in dir
}

// linkKey is what tells one copy from another. No root has two links to one copy.
type linkKey struct {
	digest digest.Digest
	perm   uint32
	sec    int64 // of the modification time
	nsec   int32
	nth    int // of those that are equal; 0 for the first
}

// keyOf is the key of the first copy.
func keyOf(e *tree.Entry) linkKey {
	return linkKey{digest: e.Digest, perm: e.Perm, sec: e.MTime.Unix(), nsec: int32(e.MTime.Nanosecond())}
}

// sharedFile is one copy. Its name in the cache stays while it has users.
type sharedFile struct {
	key  linkKey
	path string
	as   inode   // as it was made
	said verdict // of its bytes

	// Guarded by linkCache.mu.
	users   int
	idle    *list.Element // set while users is 0
	retired bool          // nobody else gets it: it was changed, or can have no more links
}

// inode is what stays the same of a file that nobody changes. The change time is
// not: making and removing links sets it.
type inode struct {
	number uint64
	size   int64
	mode   uint32
	mtime  unix.Timespec
}

func inodeOf(st *unix.Stat_t) inode {
	return inode{st.Ino, st.Size, uint32(st.Mode), st.Mtim}
}

// intact reports whether the copy is what was made, as far as its inode tells, and nobody
// has found its bytes wrong.
func (l *sharedFile) intact() bool {
	var st unix.Stat_t
	return !l.said.wrong.Load() && unix.Lstat(l.path, &st) == nil && inodeOf(&st) == l.as
}

// linkShards is over how many folders the copies are spread, so that those who
// make them do not wait for each other in one.
const linkShards = 64

func newLinkCache(dir string, maxBytes int64, log *zap.Logger) (*linkCache, error) {
	c := &linkCache{
		dir: dir, maxBytes: maxBytes, log: log,
		byKey: map[linkKey]*sharedFile{}, making: map[linkKey]chan struct{}{},
	}
	for i := range linkShards {
		if err := os.MkdirAll(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// lacks reports whether a copy would have to be made.
func (c *linkCache) lacks(k linkKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[k] == nil
}

// acquire returns an intact copy, made with open if there is none, and counts a
// user of it. However many ask, it is made once.
func (c *linkCache) acquire(ctx context.Context, k linkKey, open func() (*os.File, error)) (*sharedFile, error) {
	for {
		l, wait, mine := c.take(k)
		switch {
		case l != nil && l.intact():
			return l, nil
		case l != nil:
			c.spoil(l)
			c.release([]*sharedFile{l})
		case mine != nil:
			l, err := c.make(ctx, k, open)
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

// take returns the copy, or a channel that says when somebody has made it, or
// one that the caller closes when he has.
func (c *linkCache) take(k linkKey) (l *sharedFile, wait <-chan struct{}, mine chan struct{}) {
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

// made adds a copy, or with nil says that there is none.
func (c *linkCache) made(k linkKey, l *sharedFile) {
	c.mu.Lock()
	delete(c.making, k)
	var out []*sharedFile
	if l != nil {
		c.byKey[k] = l
		c.bytes += k.digest.SizeBytes()
		out = c.evictLocked()
	}
	c.mu.Unlock()
	c.remove(out)
}

// release takes one user of each of ls away.
func (c *linkCache) release(ls []*sharedFile) {
	c.mu.Lock()
	var out []*sharedFile
	for _, l := range ls {
		l.users--
		switch {
		case l.users > 0:
		case l.retired:
			c.bytes -= l.key.digest.SizeBytes()
			out = append(out, l)
		default:
			l.idle = c.idle.PushFront(l)
		}
	}
	out = append(out, c.evictLocked()...)
	c.mu.Unlock()
	c.remove(out)
}

func (c *linkCache) evictLocked() (out []*sharedFile) {
	for c.bytes > c.maxBytes && c.idle.Len() > 0 {
		l := c.idle.Remove(c.idle.Back()).(*sharedFile)
		l.idle = nil
		delete(c.byKey, l.key)
		c.bytes -= l.key.digest.SizeBytes()
		out = append(out, l)
	}
	return out
}

// overfull reports whether the copies in use take more than all may.
func (c *linkCache) overfull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes > c.maxBytes
}

// retire lets nobody else have l. It reports whether that is news.
func (c *linkCache) retire(l *sharedFile) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.retired {
		return false
	}
	l.retired = true
	delete(c.byKey, l.key)
	return true
}

// spoil retires a copy that was changed.
func (c *linkCache) spoil(l *sharedFile) {
	if c.retire(l) {
		at := []zap.Field{zap.Stringer("blob", l.key.digest), zap.String("path", l.path)}
		if l.said.wrong.Load() {
			c.log.Warn("a linked copy of an input was damaged; it is dropped", at...)
		} else {
			c.log.Warn("a command changed an input that other roots share; it is dropped", at...)
		}
	}
}

func (c *linkCache) remove(ls []*sharedFile) {
	for _, l := range ls {
		if err := os.Remove(l.path); err != nil && !errors.Is(err, os.ErrNotExist) {
			c.log.Error("cannot remove a linked file", zap.Error(err))
		}
	}
}

// make writes a copy, which has one user.
func (c *linkCache) make(ctx context.Context, k linkKey, open func() (*os.File, error)) (*sharedFile, error) {
	from, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	if st, err := from.Stat(); err != nil {
		return nil, err
	} else if st.Size() != k.digest.SizeBytes() {
		return nil, fmt.Errorf("blob %s has %d bytes", k.digest, st.Size())
	}
	c.mu.Lock()
	c.serial++
	n := c.serial
	c.mu.Unlock()
	l := &sharedFile{key: k, users: 1}
	l.said.right(time.Now())
	l.path = filepath.Join(c.dir, strconv.FormatUint(n%linkShards, 10), strconv.FormatUint(n, 10))
	if l.as, err = copyTo(ctx, l.path, from, k); err != nil {
		_ = os.Remove(l.path)
		return nil, err
	}
	return l, nil
}
