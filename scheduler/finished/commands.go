package finished

import (
	"sync/atomic"

	"github.com/forerunner-build/forerunner/scheduler/operation"
)

const (
	// mostCommands limits the memory of commands that were sent to workers, which is one part in
	// commandParts of the program's; commandBytes is that of one beside its content.
	mostCommands, commandParts = 8 << 20, 256
	commandBytes               = 64
)

// A commands limits the memory of the Commands that were sent to workers, and are kept until their
// operations have their records: they need not be read once more. Each has passed the checks of its
// own operation. What there was no room for is read from the storage.
type commands struct {
	most  int64
	bytes atomic.Int64 // of those kept
}

func newCommands(memory int64) *commands {
	most := int64(mostCommands)
	if memory > 0 {
		most = min(most, memory/commandParts)
	}
	return &commands{most: most}
}

// keep keeps a Command if there is room, instead of an earlier one of the operation.
func (c *commands) keep(in *operation.Sent, command []byte) {
	n := sizeOf(command)
	if c.bytes.Add(n) > c.most {
		c.bytes.Add(-n)
		return
	}
	before, isKept := in.Keep(command)
	if !isKept {
		before = command
	}
	c.bytes.Add(-sizeOf(before))
}

// end returns the Command of an operation that has ended; nil: it was not kept.
func (c *commands) end(in *operation.Sent) []byte {
	command := in.End()
	c.bytes.Add(-sizeOf(command))
	return command
}

// sizeOf returns the memory of a kept Command, 0 if it is nil.
func sizeOf(command []byte) int64 {
	if command == nil {
		return 0
	}
	return int64(len(command)) + commandBytes
}
