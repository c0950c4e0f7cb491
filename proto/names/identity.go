package names

import "maps"

// Keys of the identity that a worker shows a scheduler. To the scheduler an identity is opaque,
// but for PositionKey and ThreadKey.
const (
	// HostKey and DataKey name the machine and the data folder: together one worker.
	HostKey = "host"
	DataKey = "data"
	// PositionKey distinguishes the positions of one worker.
	PositionKey = "position"
	// ThreadKey distinguishes those of one worker of Buildbarn (bb_worker, whose Concurrency is more
	// than one).
	ThreadKey = "thread"
)

// Position returns the name of a position among those of its worker; empty if it is the only one.
func Position(id map[string]string) string {
	if name, ok := id[PositionKey]; ok {
		return name
	}
	return id[ThreadKey]
}

// IsPosition reports whether a key of an identity distinguishes positions of one worker.
func IsPosition(key string) bool { return key == PositionKey || key == ThreadKey }

// WithoutPosition returns the identity that all positions of a worker have in common.
func WithoutPosition(id map[string]string) map[string]string {
	worker := maps.Clone(id)
	maps.DeleteFunc(worker, func(key, _ string) bool { return IsPosition(key) })
	return worker
}
