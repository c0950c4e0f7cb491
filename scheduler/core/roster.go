package core

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// ErrTooManyDrains says that MaxDrains patterns are in force.
var ErrTooManyDrains = errors.New("too many drains are in force; undrain some, or use patterns that match more")

// MaxDrains bounds the patterns in force: each new worker is compared with all.
const MaxDrains = 1000

// A roster has all workers that are known, by their keys.
type roster struct {
	byKey map[string]*worker
	// connections are the workers by the connection that they last called over.
	connections map[uint64]map[*worker]struct{}
	// drains hold for the workers that they match, now and later; the oldest first.
	drains []event.DrainRecord
}

func newRoster() *roster {
	return &roster{byKey: map[string]*worker{}, connections: map[uint64]map[*worker]struct{}{}}
}

// sorted returns all workers in the order of their keys.
func (r *roster) sorted() []*worker {
	return slices.SortedFunc(maps.Values(r.byKey), byKey)
}

func byKey(a, b *worker) int { return cmp.Compare(a.key, b.key) }

// add makes a worker known.
func (r *roster) add(w *worker) { r.byKey[w.key] = w }

// remove forgets a worker.
func (r *roster) remove(w *worker) {
	r.connect(w, 0)
	delete(r.byKey, w.key)
}

// connect notes which connection a worker called over; 0: none.
func (r *roster) connect(w *worker, connection uint64) {
	if w.connection == connection {
		return
	}
	if ws := r.connections[w.connection]; ws != nil {
		delete(ws, w)
		if len(ws) == 0 {
			delete(r.connections, w.connection)
		}
	}
	w.connection = connection
	if connection == 0 {
		return
	}
	if r.connections[connection] == nil {
		r.connections[connection] = map[*worker]struct{}{}
	}
	r.connections[connection][w] = struct{}{}
}

// disconnect returns the workers that called last over a connection, which has ended, in the order of their keys.
func (r *roster) disconnect(connection uint64) []*worker {
	gone := slices.SortedFunc(maps.Keys(r.connections[connection]), byKey)
	for _, w := range gone {
		r.connect(w, 0)
	}
	return gone
}

// isDrained reports whether a pattern in force matches a worker.
func (r *roster) isDrained(w *worker) bool {
	return slices.ContainsFunc(r.drains, func(d event.DrainRecord) bool { return d.Pattern.Match(w.attribute) })
}

// drain puts a drain in force; false: one with an equal pattern is.
func (r *roster) drain(d event.DrainRecord) (bool, error) {
	if r.index(d.Pattern) >= 0 {
		return false, nil
	}
	if len(r.drains) >= MaxDrains {
		return false, ErrTooManyDrains
	}
	r.drains = append(r.drains, d)
	return true, nil
}

// undrain takes an equal pattern back; false: none is in force.
func (r *roster) undrain(p pattern.Pattern) bool {
	i := r.index(p)
	if i >= 0 {
		r.drains = slices.Delete(r.drains, i, i+1)
	}
	return i >= 0
}

func (r *roster) index(p pattern.Pattern) int {
	return slices.IndexFunc(r.drains, func(x event.DrainRecord) bool { return x.Pattern.String() == p.String() })
}
