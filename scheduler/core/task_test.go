package core

import (
	"testing"
	"unsafe"
)

// maxTaskBytes is where objects begin that the garbage collector looks at one by one.
const maxTaskBytes = 512

func TestTaskIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(task{}); n > maxTaskBytes {
		t.Errorf("a task has %d bytes, more than %d", n, maxTaskBytes)
	}
}
