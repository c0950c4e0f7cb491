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
	// frugality is how much longer than a question the scheduler is left alone after it.
	frugality = 20
	// maxRest limits the pause: a request takes long on an overloaded machine, and then its
	// duration does not show its cost.
	maxRest = 500 * time.Millisecond
	// fresh is how old an answer may be that is used again.
	fresh = time.Second
	// maxAnswers limits the kept answers.
	maxAnswers = 64
	// shownBranches bounds the branches of each queue that are asked for.
	shownBranches = 500
)

// A Source calls the scheduler, one call at a time and not too often. It reuses answers of the last
// second, which callers must not change.
type Source struct {
	Scheduler admin.SchedulerServer
	turn      chan struct{} // held by the one that makes a request
	next      time.Time     // when the next question may be asked; of the holder of turn

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

// KeyFor returns key for viewers that see everything, and no key for others, because the next
// viewer may see more.
func KeyFor(ctx context.Context, key string) string {
	if auth.Allowed(ctx, auth.Observe, "") {
		return key
	}
	return ""
}

// Get returns the result of do for a key, or an earlier result of the last second. Without a key
// the result is for one caller.
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
	if a, ok := s.known(key); ok { // the request that this one waited for was the same
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
	s.next = end.Add(min(frugality*end.Sub(start), maxRest))
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

// keep keeps a, and drops old or surplus answers.
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

// Forget drops all answers, because something was changed.
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
