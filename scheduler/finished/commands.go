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

// A commands has the Commands that were sent to workers, by operation, until these have their
// records: they need not read them once more. Those of other operations are not there, so each has
// passed the checks of its own operation.
type commands struct {
	mu   sync.Mutex
	sent *bounded.Cache[string, []byte] // guarded by mu
}

func newCommands(memory int64) *commands {
	most := int64(mostCommands)
	if memory > 0 {
		most = min(most, memory/commandParts)
	}
	return &commands{sent: bounded.New[string, []byte](most)}
}

func (c *commands) add(operation string, command []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent.Put(operation, command, int64(len(command))+commandBytes)
}

// take removes the Command of an operation, and returns it; false: it is not there.
func (c *commands) take(operation string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sent.Remove(operation)
}
