package census

import (
	"context"
	"sync"
)

// A shared value is found once, for all that ask for it. The zero value is ready for use.
type shared[T any] struct {
	begin sync.Once
	ended chan struct{} // closed when value is known
	value T
}

// get returns the value that the first call's find returns; not ok: ctx ended before. That does not
// end find, for which others may wait.
func (s *shared[T]) get(ctx context.Context, find func() T) (value T, ok bool) {
	s.begin.Do(func() {
		s.ended = make(chan struct{})
		go func() {
			defer close(s.ended)
			s.value = find()
		}()
	})
	select {
	case <-s.ended:
		return s.value, true
	case <-ctx.Done():
		return value, false
	}
}
