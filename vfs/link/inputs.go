package link

import (
	"context"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

const (
	// fetchWidth is how many calls of the Source wait at once.
	fetchWidth = 16
	// loadBlobs and loadBytes limit one call of Load.
	loadBlobs = 4096
	loadBytes = 256 << 20
	// maxEntries bounds a root: a tree of a few directories, each holding the
	// next one often, describes more than a disk can hold.
	maxEntries = 2 << 20
)

// Source provides the inputs; see vfs.Source.
type Source interface {
	Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error)
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
}

// A Loader is a Source that can fetch many blobs at once, which hard links need.
type Loader interface {
	// Load makes the blobs local, so that Directory and OpenBlob find them soon afterwards. Its
	// errors are those of OpenBlob.
	Load(ctx context.Context, ds []digest.Digest) error
}

// A Verifier is a Source that can check whether a local blob matches its digest.
type Verifier interface {
	// Verify sets a blob that does not match its digest aside, so that OpenBlob fetches it again.
	Verify(ctx context.Context, d digest.Digest) error
}

// inputs asks a Source for many things at once.
type inputs struct {
	Source
}

// occurrence is where a directory is first met, and how often it is met on its level.
type occurrence struct {
	path  string
	times int
}

// list finds all directories below root. It reads level by level and counts before anybody lists
// them: few directories can stand for any number of paths.
func (in inputs) list(ctx context.Context, root digest.Digest) (*listing, error) {
	lists := map[digest.Digest]*tree.Directory{}
	level := map[digest.Digest]occurrence{root: {"", 1}}
	for entries := 0; len(level) > 0; {
		if err := in.decode(ctx, level, lists); err != nil {
			return nil, err
		}
		below := map[digest.Digest]occurrence{}
		for d, at := range level {
			list := lists[d]
			if entries += at.times * list.Len(); entries > maxEntries {
				return nil, fmt.Errorf("%w: it has more than %d entries, too many for hard links",
					tree.ErrInvalid, maxEntries)
			}
			for i := range list.Len() {
				if list.Kind(i) != tree.Dir {
					continue
				}
				e := list.At(i)
				next, ok := below[e.Digest]
				if !ok {
					next.path = joinName(at.path, e.Name)
				}
				next.times += at.times
				below[e.Digest] = next
			}
		}
		level = below
	}
	return &listing{dirs: lists, sizes: map[digest.Digest]int{}}, nil
}

// decode adds the directories of a level to lists.
func (in inputs) decode(
	ctx context.Context, level map[digest.Digest]occurrence, lists map[digest.Digest]*tree.Directory,
) error {
	var want []digest.Digest
	for d := range level {
		if lists[d] == nil {
			want = append(want, d)
		}
	}
	if err := in.load(ctx, want); err != nil {
		return err
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchWidth)
	for _, d := range want {
		group.Go(func() error {
			list, err := in.directory(ctx, d)
			if err != nil {
				return planError(level[d].path, err)
			}
			mu.Lock()
			defer mu.Unlock()
			lists[d] = list
			return nil
		})
	}
	return group.Wait()
}

// load has a Source that can fetch ds in few calls.
func (in inputs) load(ctx context.Context, ds []digest.Digest) error {
	loader, ok := in.Source.(Loader)
	if !ok {
		return nil
	}
	for len(ds) > 0 {
		n, size := 0, int64(0)
		for n < len(ds) && n < loadBlobs && (n == 0 || size+ds[n].SizeBytes() <= loadBytes) {
			size += ds[n].SizeBytes()
			n++
		}
		if err := loader.Load(ctx, ds[:n]); err != nil {
			return fmt.Errorf("load the input root: %w", err)
		}
		ds = ds[n:]
	}
	return nil
}

func (in inputs) directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if dir, ok := in.LocalDirectory(d); ok {
		return dir, nil
	}
	return in.Directory(ctx, d)
}

// blob is the blob d, to make copies of.
func (in inputs) blob(d digest.Digest) *blob {
	return &blob{digest: d, open: func(ctx context.Context) (*os.File, error) { return in.OpenBlob(ctx, d) }}
}

func planError(path string, err error) error {
	if path == "" {
		path = "."
	}
	return fmt.Errorf("read directory %s of the input root: %w", path, err)
}

func joinName(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
