package names

// Keys of the identity that a worker shows a scheduler. To the scheduler an identity is opaque,
// but for PositionKey.
const (
	// HostKey and DataKey name the machine and the data folder: together one worker.
	HostKey = "host"
	DataKey = "data"
	// PositionKey tells the positions of one worker apart.
	PositionKey = "position"
)
