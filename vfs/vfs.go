package vfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/vfs/budget"
	"github.com/forerunner-build/forerunner/vfs/copied"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// ErrUnavailable is wrapped by the errors of Open that name a missing part of this machine: FUSE,
// privilege, overlayfs, or a file system for its writable layer.
var ErrUnavailable = errors.New("input roots are not available")

// ErrInvalidDirectory is wrapped by errors about a Directory that REv2 does not
// allow, or that no file system can show.
var ErrInvalidDirectory = tree.ErrInvalid

// ErrClosed is returned for an FS that was closed.
var ErrClosed = errors.New("file system is closed")

// Source provides the content of an input root. Its methods may be called concurrently, may block
// while something is fetched, and must return soon after ctx ends. The action sees their errors as
// EIO, and Root.Err reports them.
type Source interface {
	// Directory returns the Directory with a digest.
	Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error)
	// LocalDirectory is Directory if the message is in memory or on the local disk. A Root keeps no
	// directories of its own: it calls LocalDirectory at every lookup and listing, and otherwise
	// Directory, which counts as waiting.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	// OpenBlob returns a file that holds the blob; vfs closes it.
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
}

// Options are the folders and settings of an FS. Both folders are required and belong to this FS
// alone; Open locks each.
type Options struct {
	MountDir string // folder of the mount points; created if missing
	// UpperDir holds the files that running actions write. Created if missing. It must be on a real
	// file system (ext4, xfs, btrfs, tmpfs), ideally the store's, so that outputs can be moved into
	// it.
	UpperDir string
	// UpperMemory, if not 0, keeps the files of an action in memory instead of in UpperDir, up to
	// so many bytes for each root, and about as much again for many small files. Writes beyond it
	// fail with ENOSPC. The memory is charged to the cgroup of the process that writes, and free
	// when the root is closed. Hard links do not use it.
	UpperMemory int64
	// Owner is the owner of inputs and of the folders of a root; nil is the user of this process.
	// Hard links to inputs belong to the user of this process, except with Namespaces.
	Owner *Owner
	// Namespaces are user namespaces that map user and group 0 to these owners. Metadata images,
	// which belong to Owner, can be shown to them if Owner is user and group 0; and they see hard
	// links below an overlay as theirs.
	Namespaces map[Owner]*os.File
	// Logger may be nil.
	Logger *zap.Logger
	// Metrics is the registry for counts of the kernel's requests. Nil: they are not counted.
	Metrics prometheus.Registerer
	// Blobs, if not nil, is the folder of the Source's local blobs. Then subtrees that several
	// roots have in common are shown by metadata images, at the speed of a local disk, if the
	// kernel supports that.
	Blobs *BlobFolder
	// DisableGathered has metadata images show large subtrees alone, and not small ones together.
	DisableGathered bool
	// CopyBytes, if not 0, has roots show copies of their inputs instead of mounting them, if these
	// take at most so many bytes on the disk, each at least 4 KiB, and the Source, a CopySource, has
	// all of them. Not with hard links, nor with UpperMemory.
	CopyBytes int64
	// DropFolders removes the folders of a root that is not mounted, also those that the next one could
	// use, unless the action left the root untouched.
	DropFolders bool
	// Crew makes, serves and removes roots. Nil: new goroutines do.
	Crew *crew.Crew
	// DisablePassthrough serves reads through the page cache of the FUSE mount even if the kernel
	// could read the blobs itself.
	DisablePassthrough bool
	// Method is how the action sees inputs; empty is Auto.
	Method Method
	// DisableOverlay uses hard links without an overlayfs even if there is one. It does not affect
	// FUSE.
	DisableOverlay bool
	// VerifyEvery is how long Root.Vouch relies on a verification of the files that are kept for
	// several roots. 0 is 24 h; if it is negative, they are read after each use.
	VerifyEvery time.Duration
	// LinkBytes limits the copies of blobs for hard links, not counting those that roots are using;
	// 0 is a tenth of the free space at Open.
	LinkBytes int64
	// KnownBytes limits the total memory for inputs that actions have looked up, and for entries
	// that metadata images do not show. An action that needs more than its share fails if the
	// excess would be more than it leaves to the others. 0 is 1 GiB.
	KnownBytes int64
	// Roots is the usual number of open roots: each has an equal share of one half of KnownBytes.
	// Further roots have only the other half. 0 is 16.
	Roots int
	// Ready is how many roots may be mounted ahead of the actions that need them, for the owners of
	// earlier roots. Only the worker can enter them until NewRoot uses them; 0: none are.
	Ready int
	// Damaged is called for each such copy that is damaged. Nil: it is logged.
	Damaged func(d digest.Digest, file string)
}

// defaultKnown is Options.KnownBytes if there is none.
const defaultKnown = 1 << 30

// defaultRoots is Options.Roots if there is none.
const defaultRoots = 16

// hiddenPart is the part of Options.KnownBytes, one in so many, for what images do not show.
const hiddenPart = 8

// Names in the upper folder that no root can have.
const (
	trashName = ".trash"
	linksName = ".links"
	plainName = ".plain"
)

// FS is a folder in which input roots are mounted. Its methods may be called concurrently.
type FS struct {
	mountDir, upperDir string
	locks              []*os.File // of both
	log                *zap.Logger
	crew               *crew.Crew // serves mounts, makes roots ahead and removes
	owner              Owner      // the default for roots without an owner
	namespaces         map[Owner]*os.File
	upperMemory        int64
	linkBytes          int64
	damaged            func(d digest.Digest, file string)
	verifyEvery        time.Duration // never 0
	memory             *budget.Budget
	hiddenBytes        int64 // for what images do not show

	// State that the layers of all roots share. Open sets it.
	means     means
	points    mountPoints
	trash     *folder.Trash
	plain     *plainFolders
	driver    *fuse.Driver
	images    *image.Cache // nil: there are none
	ready     *readyRoots  // nil: none are made ahead
	copyBytes int64
	copier    *copied.Copier // of inputs of at most copyBytes; nil: none are copied
	links     *link.Store    // of hard links; nil without
	linkViews linkViews

	mu     sync.Mutex
	closed bool
	warned time.Time        // when a failed copy was last a warning
	roots  map[string]*Root // by name; a nil Root is a reserved name
}

// Open makes an FS of two folders, after it has removed the remains of a killed process in them:
// mounts below MountDir and writable layers in UpperDir. Then it mounts, uses and drops a small
// root. If the machine lacks a part for Options.Method, the error wraps ErrUnavailable and has the
// remedy. If there is a fall-back, from passthrough always and from FUSE with Auto, it warns once
// of the missing part, its cost and the remedy, and uses that.
func Open(o Options) (*FS, error) {
	if o.MountDir == "" || o.UpperDir == "" {
		return nil, errors.New("open file system: the mount folder and the upper folder are required")
	}
	f := &FS{log: o.Logger, crew: o.Crew, roots: map[string]*Root{}}
	if f.log == nil {
		f.log = zap.NewNop()
	}
	var err error
	if f.driver, err = fuse.NewDriver(f.log, f.crew, o.Metrics); err != nil {
		return nil, fmt.Errorf("register metrics of input roots: %w", err)
	}
	f.owner = folder.ProcessOwner()
	if o.Owner != nil {
		f.owner = *o.Owner
	}
	if (f.owner == Owner{}) {
		f.namespaces = o.Namespaces
	}
	for _, d := range []struct {
		path string
		to   *string
	}{{o.MountDir, &f.mountDir}, {o.UpperDir, &f.upperDir}} {
		if err := f.claim(d.path, d.to); err != nil {
			f.unlock()
			return nil, err
		}
	}
	if err := f.prepare(o); err != nil {
		err = errors.Join(err, f.sweepOut())
		f.unlock()
		return nil, err
	}
	return f, nil
}

// prepare cleans the two folders and tries the machine out.
func (f *FS) prepare(o Options) error {
	f.trash = folder.NewTrash(filepath.Join(f.upperDir, trashName), f.crew, f.log)
	f.plain = &plainFolders{dir: f.plainDir(), drop: o.DropFolders, trash: f.trash, crew: f.crew, log: f.log}
	f.points = mountPoints{dir: filepath.Join(f.mountDir, pointsName), log: f.log}
	f.linkBytes, f.damaged, f.upperMemory = o.LinkBytes, o.Damaged, o.UpperMemory
	known := cmp.Or(o.KnownBytes, defaultKnown)
	f.hiddenBytes = known / hiddenPart
	f.memory = budget.New(known-f.hiddenBytes, 2*cmp.Or(o.Roots, defaultRoots)) // a root and its image
	f.verifyEvery = cmp.Or(o.VerifyEvery, defaultVerifyEvery)
	if err := f.cleanPoints(); err != nil {
		return err
	}
	if err := f.removeLayers(); err != nil {
		return fmt.Errorf("clean up %s: %w", f.upperDir, err)
	}
	if err := f.plain.probe(); err != nil {
		f.log.Warn("input roots are not used again", zap.Error(err))
	}
	if err := f.points.open(); err != nil {
		return err
	}
	if err := f.probe(o, f.tryRoot); err != nil {
		return errors.Join(err, f.points.close())
	}
	if f.means.method() == HardLink {
		f.openLinkViews()
	}
	if o.Blobs != nil && f.means.method() == FUSE {
		f.openImages(*o.Blobs, o.DisableGathered)
	}
	if o.Ready > 0 && f.means.method() == FUSE {
		f.ready = &readyRoots{fs: f, most: o.Ready}
	}
	if o.CopyBytes > 0 && o.UpperMemory == 0 && f.means.method() == FUSE {
		f.openCopier(o.CopyBytes)
	}
	return nil
}

// openCopier has small inputs copied, if programs can be run where they are, and the machine can
// tell which of them are read.
func (f *FS) openCopier(most int64) {
	err := f.showsAll()
	if err == nil {
		f.copier, err = copied.New()
	}
	if err != nil {
		f.log.Warn("small input roots are mounted, and not copied", zap.Error(err))
		return
	}
	f.copyBytes = most
}

// showsAll returns an error if the upper folder is mounted in a way that would change what actions
// can do with their inputs.
func (f *FS) showsAll() error {
	var st unix.Statfs_t
	if err := unix.Statfs(f.upperDir, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: f.upperDir, Err: err}
	}
	if st.Flags&(unix.ST_NOEXEC|stNoSymfollow) != 0 {
		return fmt.Errorf("%s is mounted with noexec or nosymfollow", f.upperDir)
	}
	return nil
}

// stNoSymfollow is ST_NOSYMFOLLOW of statfs(2).
const stNoSymfollow = 0x2000

// copyWarnings is how often a failed copy is a warning.
const copyWarnings = time.Minute

// warnOfCopy logs why inputs were not copied. The cause may be the same for each action.
func (f *FS) warnOfCopy(root string, err error) {
	f.mu.Lock()
	now := time.Now()
	again := now.Sub(f.warned) < copyWarnings
	if !again {
		f.warned = now
	}
	f.mu.Unlock()
	if !again {
		f.log.Warn("the inputs of an action cannot be copied", zap.String("root", root), zap.Error(err))
	}
}

// claim creates the folder if need be, locks it and stores its true path, free of symlinks.
func (f *FS) claim(dir string, to *string) error {
	dir, err := mounts.Folder(dir)
	if err != nil {
		return err
	}
	lock, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("lock folder: %w", err)
	}
	if err := passOnly(lock); err != nil {
		_ = lock.Close()
		return fmt.Errorf("close folder to others: %w", err)
	}
	mountDir := f.mountDir // the first to be claimed
	if mountDir == "" {
		mountDir = dir
	}
	if err := mounts.Lock(lock, mountDir); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("lock %s: another process (or another FS) uses it", dir)
		}
		return fmt.Errorf("lock %s: %w", dir, err)
	}
	f.locks = append(f.locks, lock)
	*to = dir
	return nil
}

// passOnly lets other users pass through a folder of ours, but not open it: a user that can open it
// can lock it, too.
func passOnly(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil || info.Mode()&0o066 == 0 {
		return err
	}
	if err = dir.Chmod(info.Mode() &^ 0o066); errors.Is(err, os.ErrPermission) {
		return nil // it is not ours
	}
	return err
}

func (f *FS) unlock() {
	for _, l := range f.locks {
		_ = l.Close()
	}
	f.locks = nil
}

// Method returns the method in use: FUSE or HardLink.
func (f *FS) Method() Method { return f.means.method() }

// Folders returns the folders of the FS: of the mount points and of the files that actions write.
func (f *FS) Folders() []string { return []string{f.mountDir, f.upperDir} }

// UpperMemory returns the effective Options.UpperMemory.
func (f *FS) UpperMemory() int64 { return f.upperMemory }

// Passthrough reports whether the kernel reads blobs itself, without asking this process.
func (f *FS) Passthrough() bool { return f.means == fusePassthrough }

// Images returns the number of metadata images that roots can show.
func (f *FS) Images() int {
	if f.images == nil {
		return 0
	}
	return f.images.Len()
}

// Close closes the remaining roots, even those in use, and unlocks the folders. Later calls of
// NewRoot fail with ErrClosed; later calls of Close do nothing. It must not be called during
// NewRoot.
func (f *FS) Close() error {
	f.mu.Lock()
	f.closed = true
	left := make([]*Root, 0, len(f.roots))
	for _, r := range f.roots {
		if r != nil {
			left = append(left, r)
		}
	}
	f.mu.Unlock()
	var errs []error
	for _, r := range left {
		f.log.Warn("an input root was left open", zap.String("root", r.spec.Name))
		errs = append(errs, r.Close())
	}
	errs = append(errs, f.ready.close())
	if f.images != nil {
		errs = append(errs, f.images.Close())
	}
	errs = append(errs, f.copier.Close(), f.points.close(), f.sweepOut())
	f.unlock()
	return errors.Join(errs...)
}

// LeaveTrash stops the removal of the remains of closed roots, so that Close does not wait for it.
// The next Open of these folders continues it. It may be called at any time, and again.
func (f *FS) LeaveTrash() { f.trash.Stop() }

func (f *FS) linkDir() string  { return filepath.Join(f.upperDir, linksName) }
func (f *FS) plainDir() string { return filepath.Join(f.upperDir, plainName) }

// sweepOut removes the remains in the upper folder, and waits for that.
func (f *FS) sweepOut() error {
	err := f.plain.remove()
	if f.links != nil {
		err = errors.Join(err, f.trash.Put(f.linkDir()))
	}
	return errors.Join(err, f.trash.Close())
}

func (f *FS) reserve(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	if _, ok := f.roots[name]; ok {
		return errors.New("the name is in use")
	}
	f.roots[name] = nil
	return nil
}

func (f *FS) keep(r *Root) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.roots[r.spec.Name] = r
}

func (f *FS) forget(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.roots, name)
}
