package vfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// ErrInputChanged is wrapped by the errors of Root.Intact.
var ErrInputChanged = errors.New("an input was changed in place")

// A Loader is a Source that can fetch many blobs at once, which hard links need.
type Loader interface {
	// Load makes the blobs local, so that Directory and OpenBlob soon find them.
	// Its error is one of those that OpenBlob would have returned.
	Load(ctx context.Context, ds []digest.Digest) error
}

// A Verifier is a Source that can look whether a local blob is what its digest says.
type Verifier interface {
	// Verify sets the blob aside if it is not, so that OpenBlob fetches it again.
	Verify(ctx context.Context, d digest.Digest) error
}

const (
	// linkWidth is how many goroutines a root has that make it.
	linkWidth = 8
	// copyBatch is how many copies of a blob are made of one reading of it.
	copyBatch = 32
	// fetchWidth is how many calls of the Source wait at once.
	fetchWidth = 16
	// loadBlobs and loadBytes bound what one call of Load is asked for.
	loadBlobs = 4096
	loadBytes = 256 << 20
	// maxLinkEntries bounds a root: a tree of a few directories, each holding the
	// next one often, describes more than a disk can hold.
	maxLinkEntries = 2 << 20
)

// linkLayer is a folder of hard links to the files of the linkCache.
type linkLayer struct {
	r      *Root
	base   string // the folder
	shares bool   // kept trees may stand for parts of it
	made   bool   // base is ours

	// Set by show, and not changed afterwards.
	dirs   []linkDir // that are in base, parents before children
	files  map[linkKey]string
	links  []*sharedFile // in use by this root
	kept   []*keptTree   // the same
	toKeep []linkDir     // that this root makes kept trees of
	sizes  map[digest.Digest]int

	mu    sync.Mutex
	byKey map[linkKey]*sharedFile // the ones to link to; guarded by mu, as are links while show runs
	byIno map[uint64]linkAt       // what the inode numbers in the root stand for; like byKey
}

// linkDir is one directory of the tree, at one of its paths.
type linkDir struct {
	path   string // relative; "" for the root
	digest digest.Digest
	list   *tree.Directory
	// which says to which copy each entry that is a file leads; nil: all to the first.
	which []int
}

// key is that of the copy that entry i, which is e, leads to.
func (d *linkDir) key(i int, e *tree.Entry) linkKey {
	k := keyOf(e)
	if d.which != nil {
		k.nth = d.which[i]
	}
	return k
}

// linkAt is a copy and a path where the root has it.
type linkAt struct {
	*sharedFile
	path string
}

func newLinkLayer(r *Root) *linkLayer {
	return &linkLayer{
		r: r, base: filepath.Join(r.layerPath(), "lower"), files: map[linkKey]string{}, sizes: map[digest.Digest]int{},
		byKey: map[linkKey]*sharedFile{}, byIno: map[uint64]linkAt{},
	}
}

func (l *linkLayer) layers() []string {
	dirs := []string{l.base}
	for _, t := range l.kept {
		dirs = append(dirs, t.dir)
	}
	return dirs
}

// show loads the whole tree and makes the links.
func (l *linkLayer) show(ctx context.Context) error {
	if err := os.Mkdir(l.base, 0o755); err != nil {
		return err
	}
	l.made = true
	l.shares = l.r.fs.overlay && l.r.fs.kept != nil
	lists, err := l.plan(ctx)
	if err != nil {
		return err
	}
	l.spread(linkDir{digest: l.r.spec.Digest, list: lists[l.r.spec.Digest]}, lists)
	if err := l.keep(ctx, lists); err != nil {
		return err
	}
	l.tellApart()
	if err := l.link(ctx); err != nil {
		return err
	}
	l.dirs, l.files, l.sizes = nil, nil, nil
	return nil
}

// link makes what is in base.
func (l *linkLayer) link(ctx context.Context) error {
	if err := l.fetch(ctx); err != nil {
		return err
	}
	return l.populate(ctx)
}

// hide moves the folder out of the way; it is removed later.
func (l *linkLayer) hide() error {
	var err error
	if l.made {
		err = l.r.fs.trash.PutWith(l.base, l.r.fs.links.unlink)
	}
	l.r.fs.links.release(l.links)
	l.letGo()
	return err
}

// place is where a directory is first met, and how often it is met on its level.
type place struct {
	path  string
	times int
}

// plan finds all directories. It reads level by level and counts before anybody lists
// them: few directories can stand for any number of paths.
func (l *linkLayer) plan(ctx context.Context) (map[digest.Digest]*tree.Directory, error) {
	lists := map[digest.Digest]*tree.Directory{}
	level := map[digest.Digest]place{l.r.spec.Digest: {"", 1}}
	for entries := 0; len(level) > 0; {
		if err := l.decode(ctx, level, lists); err != nil {
			return nil, err
		}
		below := map[digest.Digest]place{}
		for d, at := range level {
			list := lists[d]
			if entries += at.times * list.Len(); entries > maxLinkEntries {
				return nil, fmt.Errorf("%w: it has more than %d entries, too many for hard links",
					ErrInvalidDirectory, maxLinkEntries)
			}
			for i := range list.Len() {
				if list.Kind(i) != Directory {
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
	return lists, nil
}

// spread notes what is to be made of top and below, where no kept tree stands for it.
func (l *linkLayer) spread(top linkDir, lists map[digest.Digest]*tree.Directory) {
	if l.share(top, lists) {
		return
	}
	l.dirs = append(l.dirs, top)
	for i := 0; i < len(l.dirs); i++ {
		d := l.dirs[i]
		for j := range d.list.Len() {
			if d.list.Kind(j) != Directory {
				continue
			}
			e := d.list.At(j)
			child := linkDir{path: joinName(d.path, e.Name), digest: e.Digest, list: lists[e.Digest]}
			if !l.share(child, lists) {
				l.dirs = append(l.dirs, child)
			}
		}
	}
}

// number chooses the copy that each file of dirs leads to, a different one for each: to a
// program that keeps links, two names of one copy are one file. Copies that are taken are left out.
func (l *linkLayer) number(taken func(linkKey) bool) {
	next := map[linkKey]int{} // by the key of the first copy
	for i := range l.dirs {
		d := &l.dirs[i]
		for j := range d.list.Len() {
			if d.list.Kind(j) != File {
				continue
			}
			e := d.list.At(j)
			first := keyOf(&e)
			k := first
			for k.nth = next[first]; taken(k); {
				k.nth++
			}
			next[first] = k.nth + 1
			l.files[k] = joinName(d.path, e.Name)
			if k.nth > 0 {
				if d.which == nil {
					d.which = make([]int, d.list.Len())
				}
				d.which[j] = k.nth
			}
		}
	}
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

// decode adds the directories of a level to lists.
func (l *linkLayer) decode(
	ctx context.Context, level map[digest.Digest]place, lists map[digest.Digest]*tree.Directory,
) error {
	var want []digest.Digest
	for d := range level {
		if lists[d] == nil {
			want = append(want, d)
		}
	}
	if err := l.load(ctx, want); err != nil {
		return err
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchWidth)
	for _, d := range want {
		group.Go(func() error {
			list, err := l.r.directory(ctx, d)
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
func (l *linkLayer) load(ctx context.Context, ds []digest.Digest) error {
	loader, ok := l.r.spec.Source.(Loader)
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

// fetch gets a copy of every file of the tree.
func (l *linkLayer) fetch(ctx context.Context) error {
	var lack []digest.Digest
	seen := map[digest.Digest]struct{}{}
	for k := range l.files {
		if _, ok := seen[k.digest]; !ok && l.r.fs.links.lacks(k) {
			seen[k.digest] = struct{}{}
			lack = append(lack, k.digest)
		}
	}
	if err := l.load(ctx, lack); err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(fetchWidth)
	for d, keys := range keysOf(l.files) {
		for some := range slices.Chunk(keys, copyBatch) {
			if inner.Err() != nil {
				break
			}
			group.Go(func() error { return l.acquireAll(inner, d, some) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// keysOf are the keys of files, by the blob.
func keysOf(files map[linkKey]string) map[digest.Digest][]linkKey {
	keys := map[digest.Digest][]linkKey{}
	for k := range files {
		keys[k.digest] = append(keys[k.digest], k)
	}
	return keys
}

// acquireAll gets the copies for some keys of d.
func (l *linkLayer) acquireAll(ctx context.Context, d digest.Digest, keys []linkKey) error {
	from := l.source(d)
	defer from.close()
	for _, k := range keys {
		if err := l.acquire(ctx, k, l.files[k], from); err != nil {
			return err
		}
	}
	return nil
}

func (l *linkLayer) source(d digest.Digest) *linkSource {
	return &linkSource{digest: d, open: func(ctx context.Context) (*os.File, error) { return l.r.spec.Source.OpenBlob(ctx, d) }}
}

// acquire gets the copy for k, of the file at path. A blob that is not what its digest says
// is fetched again, if the Source can.
func (l *linkLayer) acquire(ctx context.Context, k linkKey, path string, from *linkSource) error {
	got, err := l.r.fs.links.acquire(ctx, k, from)
	source, ok := l.r.spec.Source.(Verifier)
	for again := 0; ok && again < 2 && errors.Is(err, vouch.ErrDamaged); again++ {
		l.r.fs.log.Warn("a blob was wrong when it was copied; it is fetched again",
			zap.Stringer("blob", k.digest), zap.Error(err))
		from.close()
		_ = source.Verify(ctx, k.digest) // the next try says what is wrong
		got, err = l.r.fs.links.acquire(ctx, k, from)
	}
	if err != nil {
		return fmt.Errorf("read file %s of the input root: %w", path, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.links = append(l.links, got)
	l.byKey[k] = got
	l.byIno[got.as.number] = linkAt{got, path}
	return nil
}

// populate makes the directories, then what is in them, then sets their times.
func (l *linkLayer) populate(ctx context.Context) error {
	for _, d := range l.dirs {
		if d.path == "" {
			continue // base is there
		}
		if err := os.Mkdir(filepath.Join(l.base, d.path), 0o755); err != nil {
			return err
		}
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(linkWidth)
	for _, d := range l.dirs {
		if inner.Err() != nil {
			break
		}
		group.Go(func() error { return l.fill(inner, d) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// fill makes the files and symlinks of one directory. Its subdirectories are there.
func (l *linkLayer) fill(ctx context.Context, d linkDir) error {
	path := filepath.Join(l.base, d.path)
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for i := range d.list.Len() {
		e, err := d.list.At(i), ctx.Err()
		if err == nil && e.Kind != Directory {
			err = l.put(ctx, int(dir.Fd()), d.path, &e, d.key(i, &e))
		}
		if err != nil {
			return planError(d.path, err)
		}
	}
	if err := errors.Join(dir.Chmod(0o755), l.r.owner.Give(path)); err != nil { // whatever the umask
		return err
	}
	old := time.Unix(tree.DefaultMTime, 0)
	return os.Chtimes(path, old, old)
}

// put makes the file or symlink e in the open folder dir. k is that of the copy for a file.
func (l *linkLayer) put(ctx context.Context, dir int, path string, e *tree.Entry, k linkKey) error {
	if e.Kind == Symlink {
		if err := unix.Symlinkat(e.Target, dir, e.Name); err != nil {
			return fmt.Errorf("make symlink %q: %w", e.Name, err)
		}
		t := unix.Timespec{Sec: e.MTime.Unix(), Nsec: int64(e.MTime.Nanosecond())}
		return unix.UtimesNanoAt(dir, e.Name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	}
	for fresh := false; ; fresh = true {
		l.mu.Lock()
		to := l.byKey[k]
		l.mu.Unlock()
		err := to.link(dir, e.Name)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EMLINK) && !fresh:
			// That copy has as many names as it can; another takes its place.
			l.r.fs.links.retire(to)
			from := l.source(k.digest)
			err := l.acquire(ctx, k, joinName(path, e.Name), from)
			from.close()
			if err != nil {
				return err
			}
		case errors.Is(err, unix.EMLINK), errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP):
			return l.copyInto(ctx, to, filepath.Join(l.base, path, e.Name))
		default:
			return fmt.Errorf("link %q: %w", e.Name, err)
		}
	}
}

// copyInto makes a file where the file system has no hard links.
func (l *linkLayer) copyInto(ctx context.Context, from *sharedFile, path string) error {
	s := &linkSource{digest: from.key.digest, open: func(context.Context) (*os.File, error) { return os.Open(from.path) }}
	defer s.close()
	_, err := s.copyTo(ctx, path, from.key)
	return err
}

// intact returns an error that names the inputs that are not what was linked.
func (l *linkLayer) intact() error {
	const most = 5 // names in the error
	var changed []string
	for _, at := range l.byIno {
		if !at.intact() {
			l.r.fs.links.spoil(at.sharedFile)
			changed = append(changed, at.path)
		}
	}
	if len(changed) == 0 {
		return nil
	}
	slices.Sort(changed)
	if len(changed) > most {
		changed = append(changed[:most], "and more")
	}
	return fmt.Errorf("%w, by this command or another that shares it (inputs are hard links here, "+
		"without an overlayfs to keep them apart): %s", ErrInputChanged, strings.Join(changed, ", "))
}
