package link

import (
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// The text of Open's warning if files can have only one name.
const (
	CostOfCopies = "every file of an input root is copied for every root"
	CopiesAdvice = "put the upper folder on ext4, xfs, btrfs or tmpfs"
)

// Options are the folder and the limits of a Store.
type Options struct {
	// Dir is the folder of the copies, on the file system of the roots. Open creates it; the caller
	// removes it.
	Dir string
	// MaxBytes limits the copies, not counting those that roots are using; 0 is a tenth of the free
	// space.
	MaxBytes int64
	// Bare: commands see the links directly, and may write to them. Otherwise nothing should write
	// there, as below an overlay, and a root may have folders that it shares with other roots.
	Bare  bool
	Trash *folder.Trash // for remains of roots
	Log   *zap.Logger
	// Damaged is called for each copy that was changed, unless a command may have changed it. Nil:
	// it is logged.
	Damaged func(d digest.Digest, file string)
}

// A Store holds the copies of blobs that roots have links to, and whole directories of links that
// recur. Its methods may be called concurrently.
type Store struct {
	copies *copies
	kept   *keptTrees // nil: none are kept
	trash  *folder.Trash
	log    *zap.Logger
}

// Open makes a Store without copies. It warns if the file system has no hard links: then every file
// of every root is a copy.
func Open(o Options) (*Store, error) {
	if o.MaxBytes == 0 {
		var st unix.Statfs_t
		if err := unix.Statfs(filepath.Dir(o.Dir), &st); err != nil {
			return nil, &os.PathError{Op: "statfs", Path: filepath.Dir(o.Dir), Err: err}
		}
		o.MaxBytes = int64(st.Bavail) * st.Bsize / 10
	}
	if o.Damaged == nil {
		o.Damaged = func(d digest.Digest, file string) {
			o.Log.Warn("a copy of a blob is damaged; it is dropped", zap.Stringer("digest", d), zap.String("file", file))
		}
	}
	copies, err := newCopies(o)
	if err != nil {
		return nil, err
	}
	s := &Store{
		copies: copies, kept: newKeptTrees(filepath.Join(o.Dir, "kept"), copies, o.Trash, o.Log),
		trash: o.Trash, log: o.Log,
	}
	return s, s.tryLink(o.Dir)
}

// tryLink warns where files can have one name only.
func (s *Store) tryLink(dir string) error {
	file, err := os.CreateTemp(dir, ".probe")
	if err != nil {
		return err
	}
	first, second := file.Name(), file.Name()+"-2"
	defer func() { _ = os.Remove(first) }()
	if err := file.Close(); err != nil {
		return err
	}
	if err := os.Link(first, second); err != nil {
		s.log.Warn("no hard links for input roots: they are copies", zap.NamedError("missing", err),
			zap.String("costs", CostOfCopies), zap.String("remedy", CopiesAdvice))
		return nil
	}
	return os.Remove(second)
}
