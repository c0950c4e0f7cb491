package finished

import (
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// TestSentCommandsAreBounded sends more commands than there is room for, and the same operation
// twice, as after a retry.
func TestSentCommandsAreBounded(t *testing.T) {
	const memory, size = 1 << 20, 1000
	c := newCommands(memory)
	var ops []*request.Operation
	for range 100 {
		op := &request.Operation{}
		ops = append(ops, op)
		c.add(op, make([]byte, size))
		if c.bytes.Load() > memory/commandParts {
			t.Fatalf("%d bytes are kept of %d", c.bytes.Load(), memory/commandParts)
		}
	}
	if _, ok := c.take(ops[len(ops)-1]); ok {
		t.Error("a command without room is kept")
	}
	c.add(ops[0], []byte("again"))
	if b, ok := c.take(ops[0]); !ok || string(b) != "again" {
		t.Errorf("took %q, %t", b, ok)
	}
	for _, op := range ops {
		c.take(op)
	}
	if n := c.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
}

// TestSentAfterTheEnd sends commands to workers while the operations end, as when clients leave.
func TestSentAfterTheEnd(t *testing.T) {
	c := newCommands(0)
	for range 1000 {
		op := &request.Operation{}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { c.add(op, make([]byte, 100)) })
		}
		all.Go(func() { c.take(op) })
		all.Wait()
		if _, ok := c.take(op); ok {
			t.Fatal("an operation that has ended keeps a command")
		}
	}
	if n := c.bytes.Load(); n != 0 {
		t.Errorf("%d bytes are left of nothing", n)
	}
}
