package names

import "maps"

// Keys of the identity that a worker shows a scheduler. To the scheduler an identity is opaque,
// but for PositionKey.
const (
	// HostKey and DataKey name the machine and the data folder: together one worker.
	HostKey = "host"
	DataKey = "data"
	// PositionKey distinguishes the positions of one worker.
	PositionKey = "position"
)

// WithoutPosition returns the identity that all positions of a worker have in common.
func WithoutPosition(id map[string]string) map[string]string {
	worker := maps.Clone(id)
	delete(worker, PositionKey)
	return worker
}
