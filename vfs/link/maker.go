package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

const (
	// makeWidth is the number of goroutines that make a root.
	makeWidth = 8
	// copyBatch is how many copies of a blob are made of one reading of it.
	copyBatch = 32
)

// A maker makes a folder of links.
type maker struct {
	plan   // its memory is freed when it is done
	base   string
	owner  folder.Owner
	inputs inputs
	copies *copies
	log    *zap.Logger

	links []*sharedFile // that the folder has links to; guarded by mu while it is made

	mu    sync.Mutex
	byKey map[fileKey]*sharedFile // the ones to link to; guarded by mu
	byIno map[uint64]linkAt       // the meaning of the inode numbers in the folder; like links
	names names                   // like links
}

// linkAt is a copy and a path where the root has it.
type linkAt struct {
	*sharedFile
	path string
}

// make executes the plan.
func (m *maker) make(ctx context.Context) error {
	if err := m.fetch(ctx); err != nil {
		return err
	}
	return m.populate(ctx)
}

// fetch gets a copy of every file of the tree.
func (m *maker) fetch(ctx context.Context) error {
	var lack []digest.Digest
	seen := map[digest.Digest]struct{}{}
	for k := range m.files {
		if _, ok := seen[k.digest]; !ok && m.copies.lacks(k) {
			seen[k.digest] = struct{}{}
			lack = append(lack, k.digest)
		}
	}
	if err := m.inputs.load(ctx, lack); err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(fetchWidth)
	for d, keys := range keysOf(m.files) {
		for some := range slices.Chunk(keys, copyBatch) {
			if inner.Err() != nil {
				break
			}
			group.Go(func() error { return m.acquireAll(inner, d, some) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// keysOf are the keys of files, by the blob.
func keysOf(files map[fileKey]string) map[digest.Digest][]fileKey {
	keys := map[digest.Digest][]fileKey{}
	for k := range files {
		keys[k.digest] = append(keys[k.digest], k)
	}
	return keys
}

// acquireAll gets the copies for some keys of d.
func (m *maker) acquireAll(ctx context.Context, d digest.Digest, keys []fileKey) error {
	from := m.inputs.blob(d)
	defer from.close()
	for _, k := range keys {
		if err := m.acquire(ctx, k, m.files[k], from); err != nil {
			return err
		}
	}
	return nil
}

// acquire gets the copy for k, of the file at path. If the blob does not match its digest, it is
// fetched again, if the Source can do that.
func (m *maker) acquire(ctx context.Context, k fileKey, path string, from *blob) error {
	got, err := m.copies.acquire(ctx, k, from)
	source, ok := m.inputs.Source.(Verifier)
	for again := 0; ok && again < 2 && errors.Is(err, vouch.ErrDamaged); again++ {
		m.log.Warn("a blob was wrong when it was copied; it is fetched again",
			zap.Stringer("blob", k.digest), zap.Error(err))
		from.close()
		_ = source.Verify(ctx, k.digest) // the next try reports the error
		got, err = m.copies.acquire(ctx, k, from)
	}
	if err != nil {
		return fmt.Errorf("read file %s of the input root: %w", path, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.links = append(m.links, got)
	m.byKey[k] = got
	m.byIno[got.as.number] = linkAt{got, path}
	return nil
}

// populate makes the directories, then their entries, then sets their times.
func (m *maker) populate(ctx context.Context) error {
	for _, d := range m.dirs {
		if d.path == "" {
			continue // base exists
		}
		if err := os.Mkdir(filepath.Join(m.base, d.path), 0o755); err != nil {
			return err
		}
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(makeWidth)
	for _, d := range m.dirs {
		if inner.Err() != nil {
			break
		}
		group.Go(func() error { return m.fill(inner, d) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// fill makes the files and symlinks of one directory, whose subdirectories must exist.
func (m *maker) fill(ctx context.Context, d dirAt) error {
	path := filepath.Join(m.base, d.path)
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	for i := range d.list.Len() {
		e, err := d.list.At(i), ctx.Err()
		if err == nil && e.Kind != tree.Dir {
			err = m.put(ctx, int(dir.Fd()), d.path, &e, d.key(i, &e))
		}
		if err != nil {
			return planError(d.path, err)
		}
	}
	if err := errors.Join(dir.Chmod(0o755), m.owner.Give(path)); err != nil { // independent of the umask
		return err
	}
	old := time.Unix(tree.DefaultMTime, 0)
	if err := os.Chtimes(path, old, old); err != nil {
		return err
	}
	return m.note(path)
}

// note records a folder or a file of its own in its present state.
func (m *maker) note(path string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.names.note(path)
}

// put makes the file or symlink e in the open folder dir. k is the key of a file's copy.
func (m *maker) put(ctx context.Context, dir int, path string, e *tree.Entry, k fileKey) error {
	if e.Kind == tree.Symlink {
		if err := unix.Symlinkat(e.Target, dir, e.Name); err != nil {
			return fmt.Errorf("make symlink %q: %w", e.Name, err)
		}
		t := unix.Timespec{Sec: e.MTime.Unix(), Nsec: int64(e.MTime.Nanosecond())}
		return unix.UtimesNanoAt(dir, e.Name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
	}
	for fresh := false; ; fresh = true {
		m.mu.Lock()
		to := m.byKey[k]
		m.mu.Unlock()
		err := to.link(dir, e.Name)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EMLINK) && !fresh:
			// That copy has as many names as it can; another takes its place.
			m.copies.retire(to)
			from := m.inputs.blob(k.digest)
			err := m.acquire(ctx, k, joinName(path, e.Name), from)
			from.close()
			if err != nil {
				return err
			}
		case errors.Is(err, unix.EMLINK), errors.Is(err, unix.EPERM), errors.Is(err, unix.EOPNOTSUPP):
			return m.copyInto(ctx, to, filepath.Join(m.base, path, e.Name))
		default:
			return fmt.Errorf("link %q: %w", e.Name, err)
		}
	}
}

// copyInto makes a file where the file system has no hard links.
func (m *maker) copyInto(ctx context.Context, from *sharedFile, path string) error {
	s := &blob{digest: from.key.digest, open: func(context.Context) (*os.File, error) { return os.Open(from.path) }}
	defer s.close()
	if _, err := s.copyTo(ctx, path, from.key); err != nil {
		return err
	}
	return m.note(path)
}
