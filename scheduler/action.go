package scheduler

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

// flights are tasks by their action. Of those of one action, which are seldom more
// than one, each holds the one that came after it.
type flights map[action]*task

func (f flights) add(t *task) {
	last := f[t.action]
	if last == nil {
		f[t.action] = t
		return
	}
	for last.after != nil {
		last = last.after
	}
	last.after = t
}

func (f flights) remove(t *task) {
	switch first := f[t.action]; {
	case first != t:
		for first.after != t {
			first = first.after
		}
		first.after = t.after
	case t.after != nil:
		f[t.action] = t.after
	default:
		delete(f, t.action)
	}
	t.after = nil
}

// of yields the tasks of an action, the oldest first. They do not change meanwhile.
func (f flights) of(a action) iter.Seq[*task] {
	return func(yield func(*task) bool) {
		for t := f[a]; t != nil && yield(t); t = t.after {
		}
	}
}
