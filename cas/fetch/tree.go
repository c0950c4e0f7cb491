package fetch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// treeBytes limits the memory that one tree takes; it is an eighth of that for directories at
	// most.
	treeBytes = 16 << 20
	treeShare = 8
	// treeSample is after how many directories of a tree no more are fetched if most were local.
	treeSample = 64
	// treeSome is how many new directories are reported at once.
	treeSome = 128
)

// PrefetchTree makes directories of a tree local for LocalDirectory, with one call for all levels,
// but at most so many: they are kept in memory, and not in the store. It calls some when further ones
// are local, while others come. It returns those that it fetched, also with an error, and ends early
// if most of the first ones were local. The error wraps errors.ErrUnsupported if directories can only
// be fetched one by one.
func (t *ReadThrough) PrefetchTree(
	ctx context.Context, root digest.Digest, most int, some func(),
) (fetched []digest.Digest, err error) {
	upstream := t.direct
	if p, ok := upstream.(cas.PatientFetcher); ok {
		upstream = p.Behind()
	}
	from, ok := upstream.(cas.TreeFetcher)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	t.trees.begin()
	defer t.trees.end()
	bytes, all := min(treeBytes, t.directoryBytes/treeShare), 0
	err = from.FetchTree(ctx, root, func(d digest.Digest, message []byte) bool {
		all++
		if !t.inMemory(d) && !t.store.Has(d) {
			dir, err := t.keepDirectory(d, message)
			if err == nil {
				bytes -= int64(dir.Bytes())
			}
			t.trees.bring(d, parsed{dir, err})
			t.countFetched(d)
			fetched = append(fetched, d)
			if len(fetched)%treeSome == 0 {
				some()
			}
		}
		return bytes > 0 && len(fetched) < most && (all < treeSample || 2*len(fetched) > all) && ctx.Err() == nil
	})
	if status.Code(err) == codes.Unimplemented {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return fetched, err
}

// trees lets callers that wait for a directory have it from a tree that comes meanwhile.
type trees struct {
	mu      sync.Mutex
	coming  int                          // guarded by mu; calls of PrefetchTree
	awaited map[digest.Digest]*directory // guarded by mu
}

// A directory is one that callers wait for.
type directory struct {
	callers int           // guarded by trees.mu
	came    chan struct{} // closed when it has come with a tree
	parsed                // valid once came is closed
}

func (x *trees) begin() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.coming++
}

func (x *trees) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.coming--
}

// await returns the directory with a digest, for callers that wait for it; nil if no tree is coming.
// The caller calls leave.
func (x *trees) await(d digest.Digest) (w *directory, leave func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.coming == 0 {
		return nil, func() {}
	}
	if w = x.awaited[d]; w == nil {
		w = &directory{came: make(chan struct{})}
		x.awaited[d] = w
	}
	w.callers++
	return w, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if w.callers--; w.callers == 0 && x.awaited[d] == w {
			delete(x.awaited, d)
		}
	}
}

// bring gives a directory to those that wait for it.
func (x *trees) bring(d digest.Digest, p parsed) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w := x.awaited[d]; w != nil {
		delete(x.awaited, d)
		w.parsed = p
		close(w.came)
	}
}
