package core

import (
	"testing"
	"unsafe"
)

// maxTaskBytes bounds what a million of them cost. Below 512 the garbage collector would look at them together.
const maxTaskBytes = 552

func TestTaskIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(task{}); n > maxTaskBytes {
		t.Errorf("a task has %d bytes, more than %d", n, maxTaskBytes)
	}
}
