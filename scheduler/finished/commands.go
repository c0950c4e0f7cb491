package finished

import (
	"sync"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

const (
	// mostCommands limits the memory of commands that were sent to workers, which is one part in
	// commandParts of the program's; commandBytes is that of one beside its content.
	mostCommands, commandParts = 8 << 20, 256
	commandBytes               = 64
)

// A commands has the Commands that were sent to workers, by operation, until these have their
// records: they need not read them once more. Those of other operations are not there, so each has
// passed the checks of its own operation. When there is no room it begins anew: what it does not
// have is read from the storage.
type commands struct {
	most int64

	mu    sync.Mutex
	sent  map[*request.Operation][]byte // guarded by mu, as bytes is
	bytes int64
}

func newCommands(memory int64) *commands {
	most := int64(mostCommands)
	if memory > 0 {
		most = min(most, memory/commandParts)
	}
	return &commands{most: most, sent: map[*request.Operation][]byte{}}
}

func (c *commands) add(op *request.Operation, command []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropLocked(op)
	n := int64(len(command)) + commandBytes
	if c.bytes+n > c.most {
		clear(c.sent)
		c.bytes = 0
	}
	if n <= c.most {
		c.sent[op] = command
		c.bytes += n
	}
}

// take removes the Command of an operation, and returns it; false: it is not there.
func (c *commands) take(op *request.Operation) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dropLocked(op)
}

func (c *commands) dropLocked(op *request.Operation) ([]byte, bool) {
	command, ok := c.sent[op]
	if ok {
		delete(c.sent, op)
		c.bytes -= int64(len(command)) + commandBytes
	}
	return command, ok
}
