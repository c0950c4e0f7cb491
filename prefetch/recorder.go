package prefetch

import (
	"slices"
	"sync"

	"github.com/forerunner-build/forerunner/cas/tree"
)

// maxRecorded bounds the paths that a Recorder keeps: as many as fill the largest
// usual filter with one bit each. maxRecordedBytes bounds the sum of their lengths: a path may
// have 4,096 bytes.
const (
	maxRecorded      = 1 << 20
	maxRecordedBytes = 96 * maxRecorded
)

// A Recorder collects the reads of one run of an action. Its zero value is ready for use; its
// methods may be called concurrently. It keeps about a million paths, or fewer long ones, and drops
// further ones.
type Recorder struct {
	mu    sync.Mutex
	reads []read // in the order of the calls, of which a path may have several
	bytes int    // of their paths

	// The following is computed from reads on demand; hashing delays no reader that waits for mu.
	// setMu comes before mu.
	setMu sync.Mutex
	done  int // so many of reads are in set
	set   map[PathHash]struct{}
	order []PathHash // those of set, in the order in which they were added
}

type read struct {
	path string
	kind tree.Kind
}

// Read records that the run has read path for the first time: it listed the directory, opened the
// file or followed the symlink. Call it from a root's OnFirstRead: it takes some ten nanoseconds.
// It keeps the string.
func (r *Recorder) Read(path string, k tree.Kind) {
	r.mu.Lock()
	if len(r.reads) < maxRecorded && r.bytes+len(path) <= maxRecordedBytes {
		r.bytes += len(path)
		if len(r.reads) == cap(r.reads) { // append alone would copy five times as much
			r.reads = slices.Grow(r.reads, max(len(r.reads), 1<<8))
		}
		r.reads = append(r.reads, read{path, k})
	}
	r.mu.Unlock()
}

// Hashes returns the hashes of the paths for a profile of the run, without duplicates: directories
// and files that were read, and all their parent directories, because a file can be read through a
// shared image without a read of its directory. They are in the order of the first read of the path
// itself or of a path below it. Symlinks are not included: their targets come with the directory.
func (r *Recorder) Hashes() []PathHash {
	r.setMu.Lock()
	defer r.setMu.Unlock()
	r.fillLocked()
	return slices.Clone(r.order)
}

// Has reports whether h is one of Hashes. The first call after new reads hashes them.
func (r *Recorder) Has(h PathHash) bool {
	r.setMu.Lock()
	defer r.setMu.Unlock()
	r.fillLocked()
	_, ok := r.set[h]
	return ok
}

// fillLocked updates set; setMu is held.
func (r *Recorder) fillLocked() {
	reads := r.after(r.done)
	if r.set == nil {
		r.set = make(map[PathHash]struct{}, len(reads))
	}
	// Most paths have their directory in common with another one.
	directories := map[string]struct{}{}
	for _, read := range reads {
		path := read.path
		if read.kind != tree.Symlink {
			r.addLocked(HashPath(path))
		}
		for above, ok := parentOf(path); ok; above, ok = parentOf(above) {
			if _, known := directories[above]; known {
				break
			}
			directories[above] = struct{}{}
			r.addLocked(HashPath(above))
		}
	}
	r.done += len(reads)
}

func (r *Recorder) addLocked(h PathHash) {
	if _, again := r.set[h]; !again {
		r.set[h] = struct{}{}
		r.order = append(r.order, h)
	}
}

// after returns all reads but the first n. They do not change any more.
func (r *Recorder) after(n int) []read {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads[n:len(r.reads):len(r.reads)]
}
