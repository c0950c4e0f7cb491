package live

import (
	"context"
	"crypto/rand"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

const (
	// maxReaders is how many streams of output are read at once.
	maxReaders = 1024
	// maxAsks is how many watches may wait to be sent to a worker.
	maxAsks = 64
	// maxIdentities is how many positions a worker may have.
	maxIdentities = 10_000
)

// A Registry brings those who read what a command prints together with workers
// that show it. Zero is ready for use. mu is taken without any other lock, and
// takes none.
type Registry struct {
	mu      sync.Mutex
	workers map[string]position // by key; guarded by mu
	readers map[string]*reader  // by id; guarded by mu
}

// A showing is a worker that shows what its commands print, as long as its call lasts.
type showing struct {
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
	closed chan struct{}   // closed when nobody reads any more
}

// show registers a worker under its identities until end is called. It takes the
// place of an older call of the same one.
func (l *Registry) show(hello *live.ServeRequest) (s *showing, end func()) {
	s = &showing{asks: make(chan *live.Watch, maxAsks), gone: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == nil {
		l.workers = map[string]position{}
	}
	keys := make([]string, len(hello.GetWorkers()))
	for i, w := range hello.GetWorkers() {
		keys[i] = core.WorkerKey(hello.GetInstanceNamePrefix(), w.GetWorkerId())
		l.workers[keys[i]] = position{s, uint32(i)}
	}
	return s, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, k := range keys {
			if l.workers[k].showing == s {
				delete(l.workers, k)
			}
		}
		close(s.gone)
	}
}

// open asks a worker for w, whose id and worker are filled in. Nil: the worker
// shows nothing, or not now. The caller closes the reader.
func (l *Registry) open(worker string, w *live.Watch) (*reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.workers[worker]
	if !ok {
		return nil, nil
	}
	if len(l.readers) >= maxReaders {
		return nil, status.Errorf(codes.ResourceExhausted, "%d streams are open already", maxReaders)
	}
	w.Id, w.Worker = rand.Text(), p.index
	select {
	case p.asks <- w: // has room, or else is not waited for
	default:
		return nil, nil
	}
	r := &reader{id: w.Id, chunks: make(chan *live.Chunk), gone: p.gone, closed: make(chan struct{})}
	if l.readers == nil {
		l.readers = map[string]*reader{}
	}
	l.readers[r.id] = r
	return r, nil
}

// Wake has a worker call Synchronize now, if it has a call of Serve and room in it.
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
	delete(l.readers, r.id)
	l.mu.Unlock()
	close(r.closed)
}

// push gives a chunk to its reader, when that is ready for it.
func (l *Registry) push(ctx context.Context, c *live.Chunk) (done bool, err error) {
	l.mu.Lock()
	r := l.readers[c.GetId()]
	l.mu.Unlock()
	if r == nil {
		return true, nil
	}
	select {
	case r.chunks <- c:
		return false, nil
	case <-r.closed:
		return true, nil
	case <-ctx.Done():
		return true, status.FromContextError(ctx.Err()).Err()
	}
}

// tell keeps what a worker reports; false: it has no call of Serve.
func (l *Registry) tell(r *live.Report) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.workers[core.WorkerKey(r.GetInstanceNamePrefix(), r.GetWorker().GetWorkerId())]
	if ok {
		p.report = r
	}
	return ok
}

// Report returns what the worker told last that a position belongs to, nil if nothing.
func (l *Registry) Report(key string) *live.Report {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p, ok := l.workers[key]; ok {
		return p.report
	}
	return nil
}

// Reports returns what all workers told last, each once.
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
