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
	mu sync.Mutex
	// When young is full it becomes old, and what was old is gone. guarded by mu
	young, old map[digest.Digest]string
}

// get returns the program that the command d starts; "" if that is not known.
func (t *tools) get(d digest.Digest) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	tool, ok := t.young[d]
	if !ok {
		if tool, ok = t.old[d]; ok {
			t.putLocked(d, tool)
		}
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
	t.putLocked(d, tool)
}

func (t *tools) putLocked(d digest.Digest, tool string) {
	if len(t.young) >= maxTools || t.young == nil {
		t.old, t.young = t.young, map[digest.Digest]string{}
	}
	t.young[d] = tool
}
