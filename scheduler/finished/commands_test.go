package finished

import (
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// TestSentCommandsAreBounded sends more commands than there is room for, and the same operation
// twice, as after a retry.
func TestSentCommandsAreBounded(t *testing.T) {
	const memory, size = 1 << 20, 1000
	c := newCommands(memory)
	var last *request.Operation
	for range 100 {
		last = &request.Operation{}
		c.add(last, make([]byte, size))
		if c.bytes > memory/commandParts {
			t.Fatalf("%d bytes are kept of %d", c.bytes, memory/commandParts)
		}
	}
	c.add(last, []byte("again"))
	if b, ok := c.take(last); !ok || string(b) != "again" {
		t.Errorf("took %q, %t", b, ok)
	}
	if _, ok := c.take(last); ok {
		t.Error("a command was taken twice")
	}
	for op := range c.sent {
		c.take(op)
	}
	if c.bytes != 0 {
		t.Errorf("%d bytes are left of nothing", c.bytes)
	}
	if c.add(last, make([]byte, memory)); len(c.sent) != 0 {
		t.Error("a command without room is kept")
	}
}
