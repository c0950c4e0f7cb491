package diskquota

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

const (
	// Unbounded is more than any process can write.
	Unbounded = math.MaxInt64
	// lookInterval is for how long no other quotas are looked for.
	lookInterval = time.Second
)

// A Space is the unused part of a quota.
type Space struct {
	Of string // the holder of the quota
	// Free of MostBytes can still be written, and Files of MostFiles created. Unbounded means no
	// limit.
	Free, MostBytes  int64
	Files, MostFiles int64
	// Late: removed files count until the file system has committed their removal.
	Late bool
	// Foreign: files of this process do not count.
	Foreign bool
	// AtOnce is how many free bytes a single write may need, however small it is.
	AtOnce int64
}

// A limit is one quota.
type limit interface {
	// space returns the rest, and false if there is no limit.
	space() (Space, bool, error)
}

// Quotas are the quotas of one folder. Its methods may be called concurrently.
type Quotas struct {
	dir    string
	owners []folder.Owner

	mu      sync.Mutex
	limits  []limit   // guarded by mu, as all below
	lookErr error     // why there may be others
	due     time.Time // when they are looked for again
}

// New returns the Quotas of the files below dir that belong to this process or to one of owners.
func New(dir string, owners []folder.Owner) *Quotas {
	all := append([]folder.Owner{folder.ProcessOwner()}, owners...)
	return &Quotas{dir: dir, owners: all}
}

// Spaces returns the unused part of each quota. It omits quotas with errors.
func (q *Quotas) Spaces() (spaces []Space, err error) {
	limits, err := q.look()
	errs := []error{err}
	for _, l := range limits {
		space, bounds, err := l.space()
		switch {
		case err != nil:
			errs = append(errs, err)
		case bounds:
			spaces = append(spaces, space)
		}
	}
	return spaces, errors.Join(errs...)
}

func (q *Quotas) look() ([]limit, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if now := time.Now(); now.After(q.due) {
		q.limits, q.lookErr = find(q.dir, q.owners)
		q.due = now.Add(lookInterval)
	}
	return q.limits, q.lookErr
}

func find(dir string, owners []folder.Owner) ([]limit, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(d.Fd()), &st); err != nil {
		return nil, fmt.Errorf("statfs %s: %w", dir, err)
	}
	if st.Type == unix.BTRFS_SUPER_MAGIC {
		return groupsOf(d)
	}
	return accountsOf(d, owners, st.Type == unix.XFS_SUPER_MAGIC), nil
}

// Describe lists the quotas, and the unused part of each.
func (q *Quotas) Describe() (string, error) {
	spaces, err := q.Spaces()
	var said []string
	for _, r := range spaces {
		said = append(said, r.String())
	}
	return strings.Join(said, ", "), err
}

func (r Space) String() string {
	s := r.Of
	if r.MostBytes < Unbounded {
		s += fmt.Sprintf(": %d of %d bytes are left", r.Free, r.MostBytes)
	}
	if r.MostFiles < Unbounded {
		s += fmt.Sprintf(": %d of %d files are left", r.Files, r.MostFiles)
	}
	return s
}

// Warn logs undetectable quotas, and their consequence.
func (q *Quotas) Warn(log *zap.Logger) {
	said, err := q.Describe()
	if err != nil {
		log.Warn("quotas of the disk cannot be read", zap.NamedError("missing", err),
			zap.String("costs", "the result of a command whose writes fail with EDQUOT, and that ignores it, may be cached"),
			zap.String("remedy", "a file system of its own for --data in place of a quota, or upper_memory"))
	}
	if said != "" {
		log.Info("the disk has quotas, which the worker respects", zap.String("quotas", said))
	}
}

// Commit makes the file systems of Quotas count removals, if a Space is Late.
func (q *Quotas) Commit() {
	d, err := os.Open(q.dir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = startCommit(d) // it commits by itself, too
}
