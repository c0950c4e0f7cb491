package finished

import (
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// TestSentCommandsAreBounded sends more commands than there is room for, and the same operation
// twice, as after a retry.
func TestSentCommandsAreBounded(t *testing.T) {
	const memory, size = 1 << 20, 1000
	c := newCommands(memory)
	var ops []*operation.Sent
	for range 100 {
		op := &operation.Sent{}
		ops = append(ops, op)
		c.keep(op, make([]byte, size))
		if c.bytes.Load() > memory/commandParts {
			t.Fatalf("%d bytes are kept of %d", c.bytes.Load(), memory/commandParts)
		}
	}
	if c.end(ops[len(ops)-1]) != nil {
		t.Error("a command without room is kept")
	}
	c.keep(ops[0], []byte("again"))
	if b := c.end(ops[0]); string(b) != "again" {
		t.Errorf("took %q", b)
	}
	for _, op := range ops {
		c.end(op)
	}
	if n := c.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
}

// TestSentAfterTheEnd sends commands to workers while the operations end, as when clients leave.
func TestSentAfterTheEnd(t *testing.T) {
	c := newCommands(0)
	for range 1000 {
		op := &operation.Sent{}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { c.keep(op, make([]byte, 100)) })
		}
		all.Go(func() { c.end(op) })
		all.Wait()
		if c.end(op) != nil {
			t.Fatal("an operation that has ended keeps a command")
		}
	}
	if n := c.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
}
