package scheduler

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core"
)

// maxFollowers is how many streams may follow one operation: Config.MaxPerClient counts operations, not who
// follows them. Calls of Execute that share a run each follow an operation of their own.
const maxFollowers = 1000

// followers are the streams that follow one operation, the newest first.
type followers struct {
	first *mailbox
	count int
}

// followLocked adds a stream to those of an operation.
func (s *Server) followLocked(name string, m *mailbox) {
	f := s.streams[name]
	if m.next = f.first; m.next != nil {
		m.next.prev = m
	}
	s.streams[name] = followers{m, f.count + 1}
	if s.isStopped() {
		m.close()
	}
}

// unfollowLocked undoes it.
func (s *Server) unfollowLocked(name string, m *mailbox) {
	f := s.streams[name]
	if m.next != nil {
		m.next.prev = m.prev
	}
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		f.first = m.next
	}
	m.next, m.prev = nil, nil
	if f.count--; f.count == 0 {
		delete(s.streams, name)
		return
	}
	s.streams[name] = f
}

// crowdedLocked returns why no further stream may follow an operation, as a gRPC status; nil if one may.
func (s *Server) crowdedLocked(name string) error {
	if n := s.streams[name].count; n >= maxFollowers {
		return retryLater(codes.ResourceExhausted, fmt.Errorf("%d streams follow operation %q already", n, name), queueFullRetry)
	}
	return nil
}

// attachLocked has a stream attach to an operation, which it follows from then on. Its error is a gRPC status.
func (s *Server) attachLocked(now time.Time, name string, m *mailbox) (st core.Status, out core.Out, err error) {
	if err := s.crowdedLocked(name); err != nil {
		return st, s.feedLocked(now, core.Tick{}), err
	}
	if out = s.feedLocked(now, core.Attach{Name: name}); out.Err != nil {
		return st, out, errUnknownOperation(name)
	}
	st, _ = s.state.View().Operation(name)
	s.followLocked(name, m)
	return st, out, nil
}
