package roster

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
)

// A Member is a Roster's state of a worker, which embeds it.
type Member struct {
	// Key is the worker's identity (names.WorkerKey), and ID its parts, which are read-only.
	Key string
	ID  map[string]string
	// connection is the one of its last call; 0 if it is unknown.
	connection uint64
}

// Connection returns the connection of a worker's last call, 0 if that has ended or is unknown.
func (m *Member) Connection() uint64 { return m.connection }

// Attribute returns a part of a worker's identity, for patterns.
func (m *Member) Attribute(name string) (string, bool) {
	v, ok := m.ID[name]
	return v, ok
}

func (m *Member) member() *Member { return m }

// A Worker is any type that embeds a Member.
type Worker interface {
	comparable
	member() *Member
}

// Compare orders workers by their keys.
func Compare[W Worker](a, b W) int { return cmp.Compare(a.member().Key, b.member().Key) }

// A Roster has all known workers.
type Roster[W Worker] struct {
	byKey map[string]W
	// attributes counts the workers whose identity has a part of a name.
	attributes map[string]int
	// connections are the workers by the connection that they last called over.
	connections map[uint64]map[W]struct{}
}

// New returns an empty Roster.
func New[W Worker]() *Roster[W] {
	return &Roster[W]{byKey: map[string]W{}, attributes: map[string]int{}, connections: map[uint64]map[W]struct{}{}}
}

// Get returns the worker with a key, the zero W if there is none.
func (r *Roster[W]) Get(key string) W { return r.byKey[key] }

// Len returns the number of workers.
func (r *Roster[W]) Len() int { return len(r.byKey) }

// Connections returns the number of connections over which workers have called.
func (r *Roster[W]) Connections() int { return len(r.connections) }

// All yields the workers and their keys, in any order.
func (r *Roster[W]) All() iter.Seq2[string, W] { return maps.All(r.byKey) }

// Sorted returns the workers in the order of their keys.
func (r *Roster[W]) Sorted() []W { return slices.SortedFunc(maps.Values(r.byKey), Compare) }

// Add adds a worker.
func (r *Roster[W]) Add(w W) {
	m := w.member()
	r.byKey[m.Key] = w
	for name := range m.ID {
		r.attributes[name]++
	}
}

// Attributes returns the names of the parts of workers' identities, in order.
func (r *Roster[W]) Attributes() []string { return slices.Sorted(maps.Keys(r.attributes)) }

// Remove removes a worker.
func (r *Roster[W]) Remove(w W) {
	r.Connect(w, 0)
	m := w.member()
	delete(r.byKey, m.Key)
	for name := range m.ID {
		if r.attributes[name]--; r.attributes[name] == 0 {
			delete(r.attributes, name)
		}
	}
}

// Connect records the connection over which a worker called; 0: none.
func (r *Roster[W]) Connect(w W, connection uint64) {
	m := w.member()
	if m.connection == connection {
		return
	}
	if ws := r.connections[m.connection]; ws != nil {
		delete(ws, w)
		if len(ws) == 0 {
			delete(r.connections, m.connection)
		}
	}
	m.connection = connection
	if connection == 0 {
		return
	}
	if r.connections[connection] == nil {
		r.connections[connection] = map[W]struct{}{}
	}
	r.connections[connection][w] = struct{}{}
}

// Disconnect returns the workers whose last call came over a connection that has ended, sorted by
// key.
func (r *Roster[W]) Disconnect(connection uint64) []W {
	gone := slices.SortedFunc(maps.Keys(r.connections[connection]), Compare)
	for _, w := range gone {
		r.Connect(w, 0)
	}
	return gone
}

// Check returns an inconsistency of the roster, empty if there is none.
func (r *Roster[W]) Check() string {
	connected, attributes := 0, map[string]int{}
	for connection, ws := range r.connections {
		connected += len(ws)
		for w := range ws {
			if m := w.member(); m.connection != connection || r.byKey[m.Key] != w || connection == 0 {
				return fmt.Sprintf("connection %d has worker %s, which has %d", connection, m.Key, m.connection)
			}
		}
	}
	for key, w := range r.byKey {
		m := w.member()
		if m.Key != key {
			return fmt.Sprintf("worker %s is known as %s", m.Key, key)
		}
		if m.connection != 0 {
			connected--
		}
		for name := range m.ID {
			attributes[name]++
		}
	}
	if !maps.Equal(attributes, r.attributes) {
		return fmt.Sprintf("parts of identities are %v, counted %v", attributes, r.attributes)
	}
	if connected != 0 {
		return fmt.Sprintf("%d connections of workers too many", connected)
	}
	return ""
}
