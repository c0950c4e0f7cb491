package vfs

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// killPoll is how often an interrupted access looks whether its process is
// being killed. FUSE tells of the first signal only.
const killPoll = 10 * time.Millisecond

// access is one FUSE request that may have to wait.
type access struct {
	root   *Root
	cancel <-chan struct{} // closed when its thread got a signal
	thread uint32          // 0 where the kernel itself reads, or a foreign pid namespace does
}

func (r *Root) access(cancel <-chan struct{}, h *fuse.InHeader) access {
	return access{r, cancel, h.Pid}
}

// await runs call while the access waits, and tells the stall clock. When the
// root closes or the process is killed it returns early, with ok false; the
// result of call, whose context has ended then, goes to drop.
func await[T any](a access, call func(context.Context) (T, error), drop func(T)) (v T, err error, ok bool) {
	r := a.root
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	if ctx.Err() != nil {
		return v, nil, false
	}
	type result struct {
		v   T
		err error
	}
	results := make(chan result)
	r.stall.begin()
	defer r.stall.end()
	r.loads.Go(func() {
		v, err := call(ctx)
		select {
		case results <- result{v, err}:
		case <-ctx.Done():
			if err == nil {
				drop(v)
			}
		}
	})
	cancel := a.cancel
	var poll <-chan time.Time
	for {
		select {
		case got := <-results:
			return got.v, got.err, true
		case <-ctx.Done():
			return v, nil, false
		case <-cancel:
			cancel = nil
			t := time.NewTicker(killPoll)
			defer t.Stop()
			poll = t.C
		case <-poll:
		}
		if cancel == nil && killed(a.thread) {
			return v, nil, false
		}
	}
}

// killed reports whether the thread has a SIGKILL pending, or is gone. A signal
// whose default action ends the process shows as SIGKILL of all its threads.
func killed(thread uint32) bool {
	if thread == 0 {
		return false
	}
	status, err := os.ReadFile("/proc/" + strconv.FormatUint(uint64(thread), 10) + "/status")
	if err != nil {
		// Anything else, such as no descriptor for the file, says nothing of it.
		return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
	}
	const sigkill = 1 << (9 - 1)
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "SigPnd" && string(name) != "ShdPnd" {
			continue
		}
		set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err == nil && set&sigkill != 0 {
			return true
		}
	}
	return false
}

// read returns what the FUSE layer shows of directory n. It waits only where the
// Source has not got it at hand, and not for what an image knows.
func (r *Root) read(a access, n *node) (shown, fuse.Status) {
	if n.cover != nil && n.cover.image != nil {
		r.markRead(n)
		return shown{nil, n.cover}, fuse.OK
	}
	d, ok := r.spec.Source.LocalDirectory(n.Digest)
	if !ok {
		var err error
		d, err, ok = await(a, func(ctx context.Context) (*tree.Directory, error) {
			return r.spec.Source.Directory(ctx, n.Digest)
		}, func(*tree.Directory) {})
		if !ok {
			return shown{}, fuse.EIO // nobody is left to see it
		}
		if err != nil {
			r.fail(n, err)
			return shown{}, fuse.EIO
		}
	}
	r.markRead(n)
	if n.hole != nil {
		r.lacks(n.hole)
	}
	return shown{d, n.cover}, fuse.OK
}

// directory returns a directory of the tree on behalf of the worker.
func (r *Root) directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if dir, ok := r.spec.Source.LocalDirectory(d); ok {
		return dir, nil
	}
	return r.spec.Source.Directory(ctx, d)
}
