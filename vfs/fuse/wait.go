package fuse

import (
	"context"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// killPoll is how often an interrupted access checks whether its process is being killed. FUSE
// reports only the first signal.
const killPoll = 10 * time.Millisecond

// access is one FUSE request that may have to wait.
type access struct {
	layer   *Layer
	cancel  <-chan struct{} // closed when its thread got a signal
	thread  uint32          // 0 where the kernel itself reads, or a foreign pid namespace does
	request uint64          // 0: it is one to another mount
}

func (l *Layer) access(cancel <-chan struct{}, h *fuse.InHeader) access {
	return access{l, cancel, h.Pid, h.Unique}
}

// await runs call while the access waits, and updates the stall clock. When the root closes, the
// mount is gone or the process is killed it returns early, with ok false; the result of call, whose
// context has ended then, goes to drop.
func await[T any](a access, call func(context.Context) (T, error), drop func(T)) (v T, err error, ok bool) {
	l := a.layer
	ctx, stop := context.WithCancel(l.ctx)
	defer stop()
	if !l.beginLoad() {
		return v, nil, false
	}
	type result struct {
		v   T
		err error
	}
	results := make(chan result)
	gone := l.mount.conn.Device().Pass(a.request)
	l.stall.begin()
	defer l.stall.end()
	go func() {
		defer l.loads.Done()
		v, err := call(ctx)
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			if err == nil {
				drop(v)
			}
		}
	}()
	cancel := a.cancel
	var poll <-chan time.Time
	for {
		select {
		case got := <-results:
			return got.v, got.err, true
		case <-ctx.Done():
			return v, nil, false
		case <-gone:
			return v, nil, false
		case <-cancel:
			cancel = nil
			t := time.NewTicker(killPoll)
			defer t.Stop()
			poll = t.C
		case <-poll:
		}
		if cancel == nil && mounts.Killed(a.thread) {
			return v, nil, false
		}
	}
}

// beginLoad counts a call of the Source, for Hide to wait for; false if Hide does not wait any
// more.
func (l *Layer) beginLoad() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.loads.Add(1)
	return true
}

// read returns the part of directory n that the FUSE layer shows. It waits only if the Source does
// not have it locally, and not for the part of an image.
func (l *Layer) read(a access, n *Node) (shown, fuse.Status) {
	if n.cover != nil && n.cover.Whole() {
		l.hooks.Read(n)
		return shown{nil, n.cover}, fuse.OK
	}
	d, ok := l.source.LocalDirectory(n.Digest)
	if !ok {
		var err error
		d, err, ok = await(a, func(ctx context.Context) (*tree.Directory, error) {
			return l.source.Directory(ctx, n.Digest)
		}, func(*tree.Directory) {})
		if !ok {
			return shown{}, fuse.EIO // the caller has ended
		}
		if err != nil {
			l.fail(n, err)
			return shown{}, fuse.EIO
		}
	}
	l.hooks.Read(n)
	if above := n.lackedBy(); above != nil {
		l.hooks.Missed(above)
	}
	return shown{d, n.cover}, fuse.OK
}

// Directory returns a directory of the tree on behalf of a thread that waits for it, as if it asked
// this layer: cancel is closed when it gets a signal.
func (l *Layer) Directory(cancel <-chan struct{}, thread uint32, path string, d digest.Digest) (*tree.Directory, error) {
	dir, err, ok := await(access{l, cancel, thread, 0}, func(ctx context.Context) (*tree.Directory, error) {
		return l.source.Directory(ctx, d)
	}, func(*tree.Directory) {})
	if !ok {
		return nil, context.Canceled // the caller has ended
	}
	if err != nil {
		l.FailDirectory(path, err)
	}
	return dir, err
}

// FailDirectory records err, an error of reading the directory at path, unless there was an earlier
// one.
func (l *Layer) FailDirectory(path string, err error) { l.failAt(tree.Dir, path, err) }
