package live

import (
	"context"
	"crypto/rand"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

const (
	// maxReaders is how many streams of output are read at once, readersOfWorker how many of one
	// worker. A worker shows more: it learns late that one has ended.
	maxReaders, readersOfWorker = 1024, 32
	// lingers is how long a worker may send output that nobody reads until it asks whether to
	// continue.
	lingers = 3 * time.Second
	// maxAsks is how many watches may wait to be sent to a worker.
	maxAsks = 64
	// maxIdentities is how many positions a worker may have.
	maxIdentities = 10_000
)

// A Registry connects readers of commands' output with the workers that offer it. Nobody holds
// another lock together with mu.
type Registry struct {
	permits *intake.Permits // of readers

	mu      sync.Mutex
	workers map[string]position // by key; guarded by mu
	readers map[string]*reader  // by id, including those that have gone without their worker knowing yet; guarded by mu
}

// NewRegistry returns a Registry.
func NewRegistry() *Registry {
	return &Registry{permits: intake.NewPermits(maxReaders), workers: map[string]position{}, readers: map[string]*reader{}}
}

// A showing is a worker that offers the output of its commands, during its call.
type showing struct {
	permits *intake.Permits // of its readers
	// boot tells apart the processes that call as one worker; empty: it is not known.
	boot string
	asks chan *live.Watch
	gone chan struct{} // closed when the call has ended
	// Report is the last one, nil: none came yet. Guarded by Registry.mu, never changed.
	report *live.Report
}

// A position is one of the identities of such a worker.
type position struct {
	*showing
	index uint32
}

// A reader is a watch that a worker was asked for.
type reader struct {
	id     string
	chunks chan *live.Chunk
	gone   <-chan struct{} // closed when the worker is
	closed chan struct{}   // closed when no reader is left
	// yielded is closed when another caller has its place.
	yielded <-chan struct{}
	leave   func() // gives its place among all back
	left    func() // gives that at the worker back, which knows that the reader has gone
}

// show registers a worker under its identities until end is called. It takes the place of an older
// call of the same process, but not of another process that has one of the identities: that is
// refused with event.ErrTwin.
func (l *Registry) show(hello *live.ServeRequest, boot string) (s *showing, end func(), err error) {
	s = &showing{
		permits: intake.NewPermits(readersOfWorker), boot: boot, asks: make(chan *live.Watch, maxAsks), gone: make(chan struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]string, len(hello.GetWorkers()))
	for i, w := range hello.GetWorkers() {
		keys[i] = names.WorkerKey(hello.GetInstanceNamePrefix(), w.GetWorkerId())
		if p, ok := l.workers[keys[i]]; ok && p.isTwin(boot) {
			return nil, nil, event.ErrTwin
		}
	}
	for i, key := range keys {
		l.workers[key] = position{s, uint32(i)}
	}
	return s, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		maps.DeleteFunc(l.readers, func(_ string, r *reader) bool { return r.gone == s.gone })
		for _, k := range keys {
			if l.workers[k].showing == s {
				delete(l.workers, k)
			}
		}
		close(s.gone)
	}, nil
}

// isTwin reports whether a process is another one than that of the showing.
func (s *showing) isTwin(boot string) bool { return boot != "" && s.boot != "" && boot != s.boot }

// open asks a worker for w, whose id and worker are filled in, for a caller. Nil: the worker offers
// nothing, or not now. The caller closes the reader.
func (l *Registry) open(worker, caller string, w *live.Watch) (*reader, error) {
	l.mu.Lock()
	p, ok := l.workers[worker]
	l.mu.Unlock()
	if !ok {
		return nil, nil
	}
	r := &reader{id: rand.Text(), chunks: make(chan *live.Chunk), gone: p.gone, closed: make(chan struct{})}
	if err := l.enter(r, p.showing, caller); err != nil {
		return nil, err
	}
	w.Id, w.Worker = r.id, p.index
	l.mu.Lock()
	l.readers[r.id] = r
	l.mu.Unlock()
	select {
	case p.asks <- w: // has room, or else is not waited for
		return r, nil
	default:
	}
	l.forget(r)
	r.leave()
	return nil, nil
}

// enter gives a reader of a caller its permits.
func (l *Registry) enter(r *reader, s *showing, caller string) error {
	yielded := make(chan struct{})
	yield := sync.OnceFunc(func() { close(yielded) })
	leaveWorker, ok := s.permits.Take(caller, yield)
	if !ok {
		return status.Errorf(codes.ResourceExhausted, "%d streams of this worker are read already", readersOfWorker)
	}
	leaveAll, ok := l.permits.Take(caller, yield)
	if !ok {
		leaveWorker()
		return status.Errorf(codes.ResourceExhausted, "%d streams are read already", maxReaders)
	}
	r.yielded, r.leave, r.left = yielded, leaveAll, leaveWorker
	return nil
}

// Wake makes a worker call Synchronize now, if it has an open call of Serve that is not full.
func (l *Registry) Wake(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.workers[worker]; ok {
		select {
		case p.asks <- &live.Watch{Worker: p.index, Call: true}:
		default:
		}
	}
}

// close ends a reader; the worker learns it from its next Push. Nil: nothing to do.
func (l *Registry) close(r *reader) {
	if r == nil {
		return
	}
	l.mu.Lock()
	_, shown := l.readers[r.id]
	l.mu.Unlock()
	r.leave()
	close(r.closed)
	if shown {
		time.AfterFunc(lingers, func() { l.forget(r) })
	}
}

// forget records that no worker serves a reader any more.
func (l *Registry) forget(r *reader) {
	l.mu.Lock()
	delete(l.readers, r.id)
	l.mu.Unlock()
	r.left()
}

// push gives a chunk to its reader, when that is ready for it.
func (l *Registry) push(ctx context.Context, c *live.Chunk) (done bool, err error) {
	l.mu.Lock()
	r := l.readers[c.GetId()]
	l.mu.Unlock()
	if r == nil {
		return true, nil
	}
	if c.GetRefused() || c.GetEnd() {
		defer l.forget(r)
	}
	select {
	case r.chunks <- c:
		return false, nil
	case <-r.closed:
		l.forget(r)
		return true, nil
	case <-ctx.Done():
		return true, status.FromContextError(ctx.Err()).Err()
	}
}

// tell stores a worker's report; false: it has no call of Serve.
func (l *Registry) tell(r *live.Report, boot string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.workers[names.WorkerKey(r.GetInstanceNamePrefix(), r.GetWorker().GetWorkerId())]
	if !ok || p.isTwin(boot) {
		return false
	}
	p.report = r
	return true
}

// Report returns the latest report of a position's worker, or nil.
func (l *Registry) Report(key string) *live.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.workers[key]; ok {
		return p.report
	}
	return nil
}

// Reports returns the latest reports of all workers, each once.
func (l *Registry) Reports() map[*live.Report]struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[*live.Report]struct{}{}
	for _, p := range l.workers {
		if p.report != nil {
			all[p.report] = struct{}{}
		}
	}
	return all
}
