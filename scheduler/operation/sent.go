package operation

import "sync/atomic"

// A Sent keeps the encoded Command that a worker got with an operation, until the operation has
// ended. A nil Sent keeps none.
type Sent struct{ command atomic.Pointer[[]byte] }

// ended is the Command of an operation that has ended.
var ended = &[]byte{}

// Keep keeps a Command, and returns the one that it kept before. It reports false if the operation
// has ended.
func (s *Sent) Keep(command []byte) (before []byte, isKept bool) {
	for s != nil {
		was := s.command.Load()
		if was == ended {
			return nil, false
		}
		if s.command.CompareAndSwap(was, &command) {
			return commandOf(was), true
		}
	}
	return nil, false
}

// End returns the Command of an operation that has ended; nil: there is none, or End was called
// before.
func (s *Sent) End() []byte {
	if s == nil {
		return nil
	}
	return commandOf(s.command.Swap(ended))
}

func commandOf(kept *[]byte) []byte {
	if kept == nil || kept == ended {
		return nil
	}
	return *kept
}
