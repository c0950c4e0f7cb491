package finished

import (
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
)

const (
	// mostCommands limits the memory of commands that were sent to workers, which is one part in
	// commandParts of the program's; commandBytes is that of one beside its content.
	mostCommands, commandParts = 8 << 20, 256
	commandBytes               = 256
)

// A commands has the Commands that were sent to workers lately, by operation: their records need
// not read them once more. Those of other operations are not there, so each has passed the checks
// of its own operation.
type commands struct {
	mu     sync.Mutex
	recent *bounded.Cache[string, []byte] // guarded by mu
}

func newCommands(memory int64) *commands {
	most := int64(mostCommands)
	if memory > 0 {
		most = min(most, memory/commandParts)
	}
	return &commands{recent: bounded.New[string, []byte](most)}
}

func (c *commands) add(operation string, command []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent.Put(operation, command, int64(len(command))+commandBytes)
}

// of returns the Command of an operation; false: it is not there.
func (c *commands) of(operation string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.recent.Peek(operation)
}
