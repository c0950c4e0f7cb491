package answers

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/proto/admin"
)

const (
	// pauseFactor is the length of the pause after a request, as a multiple of the request's
	// duration.
	pauseFactor = 20
	// maxPause limits the pause: on an overloaded machine the duration of a request does not show
	// its cost.
	maxPause = 500 * time.Millisecond
	// fresh is the maximum age of an answer that is used again.
	fresh = time.Second
	// maxAnswers limits the number of kept answers.
	maxAnswers = 64
	// shownBranches limits the branches of each queue in an answer.
	shownBranches = 500
)

// A Source calls the scheduler, one call at a time and not too often. It reuses answers of the last
// second, which callers must not change.
type Source struct {
	Scheduler admin.SchedulerServer
	turn      chan struct{} // held by the caller that makes a request
	next      time.Time     // time of the earliest next request; guarded by turn

	mu      sync.Mutex
	answers map[string]answer
}

type answer struct {
	value any
	at    time.Time
}

// New returns a Source.
func New(scheduler admin.SchedulerServer) *Source {
	return &Source{Scheduler: scheduler, turn: make(chan struct{}, 1), answers: map[string]answer{}}
}

// KeyFor returns key for viewers that may see everything, and an empty key for others, because an
// answer that is used again must not depend on the viewer's rights.
func KeyFor(ctx context.Context, key string) string {
	if auth.Allowed(ctx, auth.Observe, "") {
		return key
	}
	return ""
}

// Get returns the result of do for a key, or an earlier result of the last second. With an empty
// key the result is never shared.
func Get[T any](ctx context.Context, s *Source, key string, do func(context.Context) (T, error)) (T, error) {
	var none T
	if a, ok := s.known(key); ok {
		return a.(T), nil
	}
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return none, status.FromContextError(ctx.Err()).Err()
	}
	if a, ok := s.known(key); ok { // the previous holder of the turn made the same request
		return a.(T), nil
	}
	if wait := time.Until(s.next); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return none, status.FromContextError(ctx.Err()).Err()
		}
	}
	start := time.Now()
	value, err := do(ctx)
	end := time.Now()
	s.next = end.Add(min(pauseFactor*end.Sub(start), maxPause))
	if err != nil {
		return none, err
	}
	s.keep(key, answer{value, end})
	return value, nil
}

func (s *Source) known(key string) (any, bool) {
	if key == "" {
		return nil, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a, ok := s.answers[key]
	return a.value, ok && time.Since(a.at) < fresh
}

// keep stores a, and drops old and surplus answers.
func (s *Source) keep(key string, a answer) {
	if key == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, old := range s.answers {
		if a.at.Sub(old.at) >= fresh || len(s.answers) >= maxAnswers {
			delete(s.answers, k)
		}
	}
	s.answers[key] = a
}

// Forget drops all answers. Call it after every change.
func (s *Source) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
}

// Queues returns all queues.
func (s *Source) Queues(ctx context.Context) (*admin.ListQueuesResponse, error) {
	return Get(ctx, s, "queues", func(ctx context.Context) (*admin.ListQueuesResponse, error) {
		return s.Scheduler.ListQueues(ctx, &admin.ListQueuesRequest{MaxBranches: shownBranches})
	})
}
