package follow

import (
	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch/mention"
)

// scansBytes limits the memory for the mentions of files that were read.
const scansBytes = 8 << 20

// Scans are the mentions of files that were read lately, for all races of a worker.
type Scans struct {
	*bounded.Memory[scanKey, []mention.Mention]
}

// A scanKey is a content, and the extension by which it was read.
type scanKey struct {
	digest    digest.Digest
	extension string
}

// NewScans returns Scans without any.
func NewScans() *Scans {
	return &Scans{bounded.NewMemory[scanKey, []mention.Mention](scansBytes)}
}

func (s *Scans) add(k scanKey, found []mention.Mention) {
	var bytes int64
	for _, m := range found {
		bytes += 32 + int64(len(m.Name))
	}
	s.Add(k, found, bytes)
}
