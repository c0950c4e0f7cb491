package follow

import (
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/mention"
)

// scansBytes limits the memory for the mentions of files that were read.
const scansBytes = 8 << 20

// Scans are the mentions of files that were read lately, for all races of a worker.
type Scans struct {
	mu      sync.Mutex
	entries *bounded.Cache[scanKey, []mention.Mention] // guarded by mu
}

// A scanKey is a content, and the extension by which it was read.
type scanKey struct {
	digest    digest.Digest
	extension string
}

// NewScans returns Scans without any.
func NewScans() *Scans {
	return &Scans{entries: bounded.New[scanKey, []mention.Mention](scansBytes)}
}

func (s *Scans) get(k scanKey) ([]mention.Mention, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries.Get(k)
}

func (s *Scans) put(k scanKey, found []mention.Mention) {
	weight := int64(256)
	for _, m := range found {
		weight += 32 + int64(len(m.Name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if weight <= scansBytes {
		s.entries.Put(k, found, weight)
	}
}
