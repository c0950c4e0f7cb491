package vfs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/budget"
	"github.com/forerunner-build/forerunner/vfs/copied"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// Kind is the kind of an entry of an input root.
type Kind = tree.Kind

// The kinds of entries.
const (
	Directory = tree.Dir
	File      = tree.File
	Symlink   = tree.Symlink
)

// Look is a kind of access to a path.
type Look = tree.Look

// RootSpec describes the input root of one action.
type RootSpec struct {
	Name   string        // unique among the open roots, and a file name
	Digest digest.Digest // of the root Directory; its function is that of the whole tree
	Source Source
	// Folders are paths of some that the caller is going to make, each after the one that it is in. The
	// root may have them already.
	Folders []string
	// Owner, if not nil, is the owner of the root instead of Options.Owner. Then it has no metadata
	// images, unless Options.Namespaces has the owner.
	Owner *Owner
	// OnFirstRead, if not nil, is called once for each path that is read (the package comment
	// defines a read): "" for the root, else "a/b". It may be called concurrently and must neither
	// block nor touch the root. With hard links it is never called.
	OnFirstRead func(path string, k Kind)
	// OnLook, if not nil, is called for each fact about the inputs before the action learns it or,
	// through Path and Unchanged, the worker. Path is the path among the inputs, also of moved
	// inputs; the same access may be reported again. It is called as OnFirstRead is. The root then
	// has no metadata images, in which lookups of names would go unseen, and each stat(2) after a
	// listing is a lookup.
	OnLook func(path string, l Look)
	// OnBlob, if not nil, is called for each blob whose bytes the action, or the worker through
	// Path and Unchanged, may get from the Source's files: before they do, but for files of a
	// metadata image soon after, and at the latest when Vouch returns. The same blob may be
	// reported again. Copies for hard links are not reported: Vouch verifies them. It is called as
	// OnFirstRead is.
	OnBlob func(d digest.Digest)
	// OnBlobRead, if not nil, is called instead of OnBlob for files of a metadata image: the Source
	// may have dropped the blob since the action read it.
	OnBlobRead func(d digest.Digest)
	// OnCopyRead, if not nil, is called instead of OnBlob for files that the action read in copies of
	// small inputs, when Stats is called: their bytes were verified when they were copied.
	OnCopyRead func(d digest.Digest)
	// OnStall, if not nil, is called when no access waits for the Source any longer, with the time
	// since the first of them began to wait: the durations of all calls are disjoint and add up to
	// Stalled. It must not block.
	OnStall func(d time.Duration)
}

// Stats counts the reads of an input root, each path once, and the lookups.
type Stats struct {
	DirectoriesRead int64
	FilesRead       int64
	SymlinksRead    int64
	BytesRead       int64 // total size of the opened files
	// Incomplete: more was read. The kernel reported opens in metadata images faster than they could
	// be counted, or not at all.
	Incomplete bool

	// Lookups and Absent count the names that the kernel asked for, existing and missing ones: for
	// a stat, as part of a path, or before an open. They are not reads. The kernel asks once for
	// each path and remembers the answer until it is short of memory; it does not ask for names
	// from a listing.
	Lookups int64
	Absent  int64
}

// Root is the input root of one action. Its methods may be called concurrently.
type Root struct {
	fs    *FS
	spec  RootSpec
	owner Owner

	// ctx is the context of calls to the Source after NewRoot. Close cancels it.
	ctx    context.Context
	cancel context.CancelFunc
	ahead  sync.WaitGroup // reads in advance what Vouch would wait for
	reads  reads
	memory *budget.Holder // of what is known of inputs

	// The layers; nil are those that the root lacks.
	inputs *fuse.Layer
	images *image.View
	waiter imageWaiter // of images
	links  *link.Layer
	over   *overlay.Layer
	plain  *plainLayer // all there is of a root without mounts
	// Their roles for the root.
	lower  lowerLayer
	upper  upperLayer
	top    func() (Dir, error) // of upper
	shared voucher             // nil: nothing of it is other roots', too

	wasReady bool      // it was mounted before its inputs were known
	points   ownFolder // of the mount points
	writable ownFolder // of files that the action writes
	vacated  atomic.Bool
	closed   func() error // release, once
}

// NewRoot makes an input root appear. With FUSE it fetches nothing before an access needs it; ctx
// only provides values for the calls of the Source, and only Close ends these. With hard links
// NewRoot blocks until everything is fetched or ctx ends; errors of the Source and invalid
// Directories are returned here and not by Root.Err.
func (f *FS) NewRoot(ctx context.Context, spec RootSpec) (*Root, error) {
	r, err := f.newRoot(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("mount input root %q: %w", spec.Name, err)
	}
	return r, nil
}

func (f *FS) newRoot(ctx context.Context, spec RootSpec) (*Root, error) {
	if err := tree.CheckName(spec.Name); err != nil {
		return nil, err
	}
	if isReserved(spec.Name) {
		return nil, fmt.Errorf("name %q is reserved", spec.Name)
	}
	if spec.Source == nil || spec.Digest.IsZero() {
		return nil, errors.New("source and digest must be given")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.reserve(spec.Name); err != nil {
		return nil, err
	}
	r := &Root{fs: f, spec: spec, owner: f.owner}
	if spec.Owner != nil {
		r.owner = *spec.Owner
	}
	r.reads = reads{inodes: fuse.NewInodes(), onFirst: spec.OnFirstRead, seen: map[uint64]struct{}{}}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.closed = sync.OnceValue(r.release)
	r.points, r.writable = f.foldersOf(spec.Name)
	r.memory = f.memory.Holder()
	r.arrange()
	if err := r.show(ctx); err != nil {
		return nil, errors.Join(err, r.closed())
	}
	f.keep(r)
	if r.canBeReady() {
		f.ready.want(r.owner, r.shownImages()) // for the next one
	}
	r.vouchAhead()
	return r, nil
}

// show makes the folders of the root and shows both layers. If it fails, release undoes its work.
func (r *Root) show(ctx context.Context) error {
	if r.copies() != nil {
		return nil // they are there
	}
	if r.plain != nil {
		return r.plain.showEmpty(r.spec.Folders)
	}
	if r.wasReady {
		// Nobody may enter before the inputs are there.
		if err := r.lower.Show(ctx); err != nil {
			return err
		}
		r.watchImages()
		return r.points.open(r.owner)
	}
	if err := r.points.make(r.owner); err != nil {
		return err
	}
	if err := r.writable.make(r.owner); err != nil {
		return err
	}
	if err := r.lower.Show(ctx); err != nil || r.over == nil {
		return err
	}
	if err := r.over.Show(r.stack()); err != nil {
		return err
	}
	r.watchImages()
	return nil
}

// watchImages has the reads of the action in images reported from now on.
func (r *Root) watchImages() {
	if r.images == nil {
		return
	}
	if err := r.images.Watch(r.over.Path()); err != nil {
		r.fs.log.Warn("cannot detect the reads of an action in metadata images", zap.Error(err))
	}
}

// release undoes show, however far it came. The order matters: the overlay holds the FUSE layer,
// and only an abort of FUSE answers all waiting requests with an error and ends all of the server's
// goroutines.
func (r *Root) release() error {
	r.cancel()
	var errs []error
	if r.images != nil {
		r.images.Unwatch()
	}
	if r.over != nil {
		errs = append(errs, r.over.Hide())
	}
	if r.plain != nil {
		errs = append(errs, r.plain.hide(r.vacated.Load()))
	} else {
		errs = append(errs, r.lower.Hide())
	}
	r.ahead.Wait()
	errs = append(errs, r.writable.drop(r.fs.trash), r.points.removePoints(overlayPoint(r.points.path), fusePoint(r.points.path)))
	if r.images != nil {
		r.images.Release()
	}
	r.memory.Close()
	r.fs.forget(r.spec.Name)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("release input root %q: %w", r.spec.Name, err)
	}
	return nil
}

// Path returns the absolute path of the root that the action sees: the inputs,
// writable. The caller makes the output directories in it.
func (r *Root) Path() string { return r.upper.Path() }

// HasFolder reports whether it is certain, before the action, that there is a folder at a path to which
// no symlink leads.
func (r *Root) HasFolder(at string) bool {
	return at == "." || r.plain != nil && r.plain.frame.Has(at)
}

// Intact returns an error that wraps ErrInputChanged and names inputs that were changed in place,
// which is possible only with hard links without overlayfs. It checks all inputs. Call it when the
// action has ended; if it fails, the result is invalid.
func (r *Root) Intact() error {
	if bare, ok := r.upper.(link.Bare); ok {
		return bare.Intact()
	}
	return nil
}

// Stalled returns for how long, in wall time, at least one access of this root has waited for the
// Source, including a present wait. It never decreases.
func (r *Root) Stalled() time.Duration {
	if r.inputs == nil {
		return 0
	}
	return r.inputs.Stalled()
}

// Err returns the first error of an access: one of the Source, that a Directory is invalid, or that
// the mount of the inputs ended before Close.
// Accesses that were abandoned, because their process was killed or the root closed, cause none.
func (r *Root) Err() error {
	if r.inputs == nil {
		return nil
	}
	return r.inputs.Err()
}

// Verify waits until every blob whose bytes the action has got is verified, and returns Err.
// Outputs of the action are valid only if that is nil. If ctx ends, Verify returns its error.
func (r *Root) Verify(ctx context.Context) error {
	if r.inputs == nil {
		return nil
	}
	return r.inputs.Verify(ctx)
}

// Stats returns the reads so far. With hard links it is zero, because reads are not visible.
func (r *Root) Stats() Stats {
	var blind bool
	if r.images != nil {
		r.images.Drain()
	}
	if c := r.copies(); c != nil {
		blind = !c.Reads()
	}
	s := r.reads.total()
	s.Incomplete = blind || r.images != nil && !r.images.SeesAll()
	if r.inputs != nil {
		s.Lookups, s.Absent = r.inputs.Lookups()
	}
	return s
}

// Aside calls f, which accesses the root on behalf of the worker. Directories of copied inputs that
// it opens do not count as read.
func (r *Root) Aside(f func() error) (err error) {
	c := r.copies()
	if c == nil {
		return f()
	}
	c.Aside(func() { err = f() })
	return err
}

// copies are those of the inputs; nil if there are none.
func (r *Root) copies() *copied.Root {
	if r.plain == nil {
		return nil
	}
	return r.plain.copies
}

// Vacated declares that no process uses the root or has one of its folders open, now or later. An
// untouched folder may then serve another root after Close.
func (r *Root) Vacated() { r.vacated.Store(true) }

// Close unmounts the root and removes everything that the action wrote. Open files and processes
// inside lose it, and do not delay Close. Accesses that wait for the Source are cancelled. Calling
// it again returns the same error.
func (r *Root) Close() error { return r.closed() }

// tellBlob reports that the action may get the bytes of d.
func (r *Root) tellBlob(d digest.Digest) {
	if r.spec.OnBlob != nil {
		r.spec.OnBlob(d)
	}
}

// tellBlobRead reports that the action may have got the bytes of d.
func (r *Root) tellBlobRead(d digest.Digest) {
	if r.spec.OnBlobRead != nil {
		r.spec.OnBlobRead(d)
	} else {
		r.tellBlob(d)
	}
}

// directory returns a directory of the tree on behalf of the worker.
func (r *Root) directory(d digest.Digest) (*tree.Directory, error) {
	if dir, ok := r.spec.Source.LocalDirectory(d); ok {
		return dir, nil
	}
	return r.spec.Source.Directory(r.ctx, d)
}
