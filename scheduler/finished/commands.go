package finished

import (
	"sync/atomic"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

const (
	// mostCommands limits the memory of commands that were sent to workers, which is one part in
	// commandParts of the program's; commandBytes is that of one beside its content.
	mostCommands, commandParts = 8 << 20, 256
	commandBytes               = 64
)

// A commands keeps the Commands that were sent to workers, in their operations, until these have
// their records: they need not be read once more. Each has passed the checks of its own operation.
// What there was no room for is read from the storage.
type commands struct {
	most  int64
	bytes atomic.Int64 // of those kept
}

// ended is the Command of operations that have their records, and keep no other any more.
var ended = &[]byte{}

func newCommands(memory int64) *commands {
	most := int64(mostCommands)
	if memory > 0 {
		most = min(most, memory/commandParts)
	}
	return &commands{most: most}
}

// add keeps the Command of an operation, instead of an earlier one.
func (c *commands) add(op *request.Operation, command []byte) {
	n := int64(len(command)) + commandBytes
	if c.bytes.Add(n) > c.most {
		c.bytes.Add(-n)
		return
	}
	for {
		before := op.Sent.Load()
		if before == ended {
			c.bytes.Add(-n)
			return
		}
		if op.Sent.CompareAndSwap(before, &command) {
			c.free(before)
			return
		}
	}
}

// take returns the Command of an operation that has ended; false: it was not kept. There is none
// any more.
func (c *commands) take(op *request.Operation) ([]byte, bool) {
	command := op.Sent.Swap(ended)
	c.free(command)
	if command == nil || command == ended {
		return nil, false
	}
	return *command, true
}

// free gives back the memory of a Command that is kept no longer.
func (c *commands) free(command *[]byte) {
	if command != nil && command != ended {
		c.bytes.Add(-int64(len(*command)) - commandBytes)
	}
}
