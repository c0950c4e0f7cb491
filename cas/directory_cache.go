package cas

import (
	"container/list"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// decodedFactor is about how many bytes of memory one byte of an encoded
// Directory becomes: an entry of 110 bytes takes some 400 as messages and strings.
const decodedFactor = 4

// A directoryCache keeps decoded directories, the one unused for longest going
// first. The zero value with maxBytes set is ready.
type directoryCache struct {
	maxBytes int64

	mu      sync.Mutex
	bytes   int64                           // guarded by mu
	entries map[digest.Digest]*list.Element // guarded by mu
	order   list.List                       // of decoded, used last first; guarded by mu
}

type decoded struct {
	digest  digest.Digest
	message *repb.Directory
}

func (e decoded) cost() int64 { return 512 + decodedFactor*e.digest.SizeBytes() }

// get returns nil for what is not there.
func (c *directoryCache) get(d digest.Digest) *repb.Directory {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[d]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(decoded).message
}

// add keeps m, unless it is larger than a quarter of the cache.
func (c *directoryCache) add(d digest.Digest, m *repb.Directory) {
	added := decoded{d, m}
	if added.cost() > c.maxBytes/4 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries[d] != nil {
		return
	}
	if c.entries == nil {
		c.entries = make(map[digest.Digest]*list.Element)
	}
	c.entries[d] = c.order.PushFront(added)
	for c.bytes += added.cost(); c.bytes > c.maxBytes; {
		last := c.order.Remove(c.order.Back()).(decoded)
		delete(c.entries, last.digest)
		c.bytes -= last.cost()
	}
}
