package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// probeAge is the maximum age of a probe's answer: more frequent requests reuse it.
	probeAge = 5 * time.Second
	// ProbePatience is the time after which a probe's target counts as broken.
	ProbePatience = 2 * time.Second
)

// A Readiness tells whether a program can do its work now. It may be used concurrently.
type Readiness struct {
	mu     sync.Mutex
	probes []*probe // guarded by mu
}

// A probe tries one thing.
type probe struct {
	what string
	try  func() error

	mu      sync.Mutex
	running chan struct{} // closed when the present attempt has ended; nil if there is none. Guarded by mu, as all fields below
	asked   time.Time     // zero: never
	err     error
}

// Add makes the program unready while try returns an error. try may block; it is not called again
// before it has returned.
func (r *Readiness) Add(what string, try func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes = append(r.probes, &probe{what: what, try: try})
}

// missing returns the failed probes, within ProbePatience even if several probes hang.
func (r *Readiness) missing() error {
	r.mu.Lock()
	probes := slices.Clone(r.probes)
	r.mu.Unlock()
	lacks := make([]error, len(probes))
	var asked sync.WaitGroup
	for i, p := range probes {
		asked.Go(func() {
			if err := p.ask(); err != nil {
				lacks[i] = fmt.Errorf("%s: %w", p.what, err)
			}
		})
	}
	asked.Wait()
	return errors.Join(lacks...)
}

// ask returns the result of the last try if it is recent, and tries again otherwise.
func (p *probe) ask() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && time.Since(p.asked) < probeAge {
		return nil
	}
	if p.running == nil {
		ended := make(chan struct{})
		p.running = ended
		go func() { // it ends with the try, which a disk that hangs may hold for as long as the process lives
			err := p.try()
			p.mu.Lock()
			p.running, p.asked, p.err = nil, time.Now(), err
			p.mu.Unlock()
			close(ended)
		}()
	}
	ended := p.running
	p.mu.Unlock()
	timer := time.NewTimer(ProbePatience)
	defer timer.Stop()
	select {
	case <-ended:
		p.mu.Lock()
		return p.err
	case <-timer.C:
		p.mu.Lock()
		return fmt.Errorf("no answer within %s", ProbePatience)
	}
}

// ServeHTTP implements http.Handler.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := r.missing(); err != nil {
		http.Error(w, "not ready\n"+err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

// Serving fails once the end of ctx has told the program to stop.
func Serving(ctx context.Context) func() error {
	return func() error {
		if ctx.Err() != nil {
			return errors.New("it was told to stop")
		}
		return nil
	}
}
