package core

import (
	"encoding/hex"
	"iter"
	"strconv"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// An action is the digest of one less its function, which workers do not say. The
// zero action is none.
type action struct {
	hash [digest.HashSize]byte
	// length is the size in bytes and one more.
	length int64
}

// actionOf returns what d names; none if d is zero.
func actionOf(d digest.Digest) (a action) {
	if !d.IsZero() {
		d.AppendHash(a.hash[:0])
		a.length = d.SizeBytes() + 1
	}
	return a
}

// String returns "<hash>/<size>", and nothing for none.
func (a action) String() string {
	if a == (action{}) {
		return ""
	}
	return hex.EncodeToString(a.hash[:]) + "/" + strconv.FormatInt(a.length-1, 10)
}

// maxLook is how many tasks of one action are looked at to find one that fits: clients can make any
// number of them. Of those beyond it none is found, so that the action may run once more than it had to.
const maxLook = 1000

// flights are tasks by their action, the oldest of each. Each holds the one that came after it, and the one
// before it; the oldest holds the latest there.
type flights map[action]*task

func (f flights) add(t *task) {
	first := f[t.action]
	if first == nil {
		f[t.action], t.before = t, t
		return
	}
	last := first.before
	last.after, t.before, first.before = t, last, t
}

func (f flights) remove(t *task) {
	first := f[t.action]
	if t.after != nil {
		t.after.before = t.before
	} else {
		first.before = t.before
	}
	switch {
	case first != t:
		t.before.after = t.after
	case t.after != nil:
		f[t.action] = t.after
	default:
		delete(f, t.action)
	}
	t.before, t.after = nil, nil
}

// of yields the tasks of an action, the oldest first. They do not change meanwhile.
func (f flights) of(a action) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for t := f[a]; t != nil && yield(t); t = t.after {
		}
	}
}

// few is of, for as many as may be looked at.
func (f flights) few(a action) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		left := maxLook
		for t := f[a]; t != nil && left > 0 && yield(t); t = t.after {
			left--
		}
	}
}
