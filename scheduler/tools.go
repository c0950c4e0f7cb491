package scheduler

import (
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// maxTools bounds the commands of one generation, maxToolBytes the program's name of each.
	maxTools     = 10_000
	maxToolBytes = 512
)

// tools remember which programs commands start, so that a command that comes again, with other
// inputs, need not be read again. What was not asked for in a while is forgotten. The zero value
// is ready.
type tools struct {
	mu    sync.Mutex
	known generations[digest.Digest, string] // guarded by mu
}

// get returns the program that the command d starts; "" if that is not known.
func (t *tools) get(d digest.Digest) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	tool, ok := t.known.get(d)
	if ok {
		t.known.put(d, tool, maxTools)
	}
	return tool
}

// put remembers the program that the command d starts.
func (t *tools) put(d digest.Digest, tool string) {
	if len(tool) > maxToolBytes {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known.put(d, tool, maxTools)
}
