package link

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// sharedFile is one copy. Its name in the cache stays while it has users.
type sharedFile struct {
	key  fileKey
	path string
	as   inode         // as it was made
	said vouch.Verdict // of its bytes

	// names is held while a name of the file is made or removed, or its change time is read: no
	// other I/O.
	names sync.Mutex
	// changed is the last known change time, and doubt is set if another process has changed the
	// file since it was read. No process can set a change time; our own changes, which are of
	// names, are known. Guarded by names.
	changed unix.Timespec
	doubt   bool
	// strange counts the changes by other processes. Guarded by names.
	strange uint32

	// Guarded by copies.mu.
	users   int
	idle    *list.Element // set while users is 0
	retired bool          // no other root gets it: it was changed, or can have no more links
}

// inode has the attributes that stay the same if no process changes a file. The change time is not
// among them: making and removing links sets it.
type inode struct {
	number uint64
	size   int64
	mode   uint32
	mtime  unix.Timespec
}

func inodeOf(st *unix.Stat_t) inode {
	return inode{st.Ino, st.Size, uint32(st.Mode), st.Mtim}
}

// intact reports whether the copy is unchanged by its inode, and was never found wrong.
func (l *sharedFile) intact() bool {
	if l.said.Wrong() {
		return false
	}
	l.names.Lock()
	defer l.names.Unlock()
	return l.lookLocked()
}

// strangers counts the changes by other processes up to the last check.
func (l *sharedFile) strangers() uint32 {
	l.names.Lock()
	defer l.names.Unlock()
	return l.strange
}

// link makes a name of the copy in a folder.
func (l *sharedFile) link(dir int, name string) error {
	return l.ours(func() error { return unix.Linkat(unix.AT_FDCWD, l.path, dir, name, 0) })
}

// ours makes a change of our own to the file. A change by another process between the check before
// and the operation itself, a few microseconds, is not detected.
func (l *sharedFile) ours(op func() error) error {
	l.names.Lock()
	defer l.names.Unlock()
	l.lookLocked()
	err := op()
	var st unix.Stat_t
	if unix.Lstat(l.path, &st) == nil {
		l.changed = st.Ctim
	}
	return err
}

// lookLocked checks for changes by other processes. It reports whether the inode is unchanged.
func (l *sharedFile) lookLocked() bool {
	var st unix.Stat_t
	if unix.Lstat(l.path, &st) != nil {
		l.doubt = true
		l.strange++
		return false
	}
	if st.Ctim != l.changed {
		l.doubt, l.changed = true, st.Ctim
		l.strange++
	}
	return inodeOf(&st) == l.as
}

// doubtful reports whether another process may have written to the file since it was read.
func (l *sharedFile) doubtful() bool {
	l.names.Lock()
	defer l.names.Unlock()
	return !l.lookLocked() || l.doubt
}

// changes counts the changes by other processes until now.
func (l *sharedFile) changes() uint32 {
	l.names.Lock()
	defer l.names.Unlock()
	l.lookLocked()
	return l.strange
}

// settle clears the doubt about the file, which was read after so many changes, unless there was
// another one.
func (l *sharedFile) settle(changes uint32) {
	l.names.Lock()
	defer l.names.Unlock()
	if l.lookLocked(); l.strange == changes {
		l.doubt = false
	}
}

// verify reads a copy that was last verified before due, or was changed since. The error wraps
// vouch.ErrDamaged if it is wrong: no root gets it any more.
func (c *copies) verify(ctx context.Context, l *sharedFile, due time.Time) error {
	written := l.doubtful()
	if written {
		due = time.Now()
	}
	err := l.said.Look(due, func() error { return l.check(ctx) })
	if !errors.Is(err, vouch.ErrDamaged) {
		return err
	}
	c.spoil(l)
	switch {
	case written && c.bare:
		err = fmt.Errorf("%w: its file was written to, by a command perhaps", err)
	case written:
		err = fmt.Errorf("%w: its file was written to by something outside of the sandbox", err)
	}
	return fmt.Errorf("copy of blob %s: %w", l.key.digest, err)
}

// check reads the copy, which is doubtful until it is found to be right: others must not rely on an
// earlier verification meanwhile.
func (l *sharedFile) check(ctx context.Context) error {
	changes := l.changes()
	err := l.read(ctx)
	if err == nil {
		l.settle(changes)
	}
	return err
}

func (l *sharedFile) read(ctx context.Context) error {
	f, err := os.Open(l.path)
	if err != nil {
		return vouch.Damaged(ctx, err)
	}
	defer func() { _ = f.Close() }()
	h := digest.NewHasher(l.key.digest.Function())
	if err := vouch.Read(ctx, f, l.key.digest.SizeBytes(), h); err != nil {
		return vouch.Damaged(ctx, err)
	}
	if h.Digest() != l.key.digest {
		return fmt.Errorf("%w: its hash is %s", vouch.ErrDamaged, h.Digest().Hash())
	}
	return nil
}
