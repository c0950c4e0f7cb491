package prefetch

import (
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// maxParted bounds the files of a Race of which parts come first.
const maxParted = 16

// parted are the large files of which the parts that runs read are asked for ahead of the rest. What comes is
// kept until the end of the Race.
type parted struct {
	ask func(d digest.Digest, parts []span.Span) (release func()) // does not wait

	mu      sync.Mutex
	known   map[digest.Digest]struct{} // guarded by mu; at most maxParted
	release []func()                   // guarded by mu; what is kept
	credit  int64                      // guarded by mu; as that of a queue, for parts alone
}

func newParted(o Origin, ask func(digest.Digest, []span.Span) func()) *parted {
	p := &parted{ask: ask, known: map[digest.Digest]struct{}{}, credit: exactCredit}
	if o == Coarse {
		p.credit = coarseCredit
	}
	return p
}

// foresee asks for parts of those of files of which some are known.
func (p *parted) foresee(files []file, known ranges) {
	if len(known) == 0 {
		return
	}
	for _, f := range files {
		if parts := known.of(f.hash, f.digest); p.admits(f.digest, parts) {
			release := p.ask(f.digest, parts)
			p.mu.Lock()
			p.release = append(p.release, release)
			p.mu.Unlock()
		}
	}
}

// admits reports whether parts of d are to be asked for, which is noted.
func (p *parted) admits(d digest.Digest, parts span.Set) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, again := p.known[d]; len(parts) == 0 || again || len(p.known) == maxParted || p.credit <= 0 {
		return false
	}
	p.credit -= parts.Bytes()
	p.known[d] = struct{}{}
	return true
}

// drop gives up what is kept.
func (p *parted) drop() {
	p.mu.Lock()
	release := p.release
	p.release = nil
	p.mu.Unlock()
	for _, f := range release {
		f()
	}
}

// doubted reports whether the profile is not to be believed for now.
func (q *queue) doubted() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.held
}
