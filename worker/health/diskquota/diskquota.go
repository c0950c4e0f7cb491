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
	// Unbounded is more than anybody can write.
	Unbounded = math.MaxInt64
	// lookInterval is for how long no other quotas are looked for.
	lookInterval = time.Second
)

// A Room is the rest of a quota.
type Room struct {
	Of string // the holder of the quota
	// Free of MostBytes may still be written, and Files of MostFiles made. Unbounded means no
	// limit.
	Free, MostBytes  int64
	Files, MostFiles int64
	// Late: removed files count until the file system has committed their removal.
	Late bool
	// Foreign: files of this process do not count.
	Foreign bool
	// AtOnce is how many bytes one write may need to be free, however few it writes.
	AtOnce int64
}

// A limit is one quota.
type limit interface {
	// room returns the rest, and false if there is no limit.
	room() (Room, bool, error)
}

// Quotas are those of one folder. Its methods may be called concurrently.
type Quotas struct {
	dir    string
	owners []folder.Owner

	mu      sync.Mutex
	limits  []limit   // guarded by mu, as all below
	lookErr error     // why there may be others
	due     time.Time // when they are looked for again
}

// New is of the files below dir that belong to this process or to one of owners.
func New(dir string, owners []folder.Owner) *Quotas {
	all := append([]folder.Owner{folder.ProcessOwner()}, owners...)
	return &Quotas{dir: dir, owners: all}
}

// Rooms returns the rest of each quota. It omits quotas with errors.
func (q *Quotas) Rooms() (rooms []Room, err error) {
	limits, err := q.look()
	errs := []error{err}
	for _, l := range limits {
		room, bounds, err := l.room()
		switch {
		case err != nil:
			errs = append(errs, err)
		case bounds:
			rooms = append(rooms, room)
		}
	}
	return rooms, errors.Join(errs...)
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

// Describe lists the quotas, and the rest of each.
func (q *Quotas) Describe() (string, error) {
	rooms, err := q.Rooms()
	var said []string
	for _, r := range rooms {
		said = append(said, r.String())
	}
	return strings.Join(said, ", "), err
}

func (r Room) String() string {
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
			zap.String("to_have_it", "a file system of its own for --data in place of a quota, or upper_memory"))
	}
	if said != "" {
		log.Info("the disk has quotas, which the worker respects", zap.String("quotas", said))
	}
}

// Commit makes the file systems of Quotas count removals, if a Room is Late.
func (q *Quotas) Commit() {
	d, err := os.Open(q.dir)
	if err != nil {
		return
	}
	defer d.Close()
	_ = startCommit(d) // it commits by itself, too
}
