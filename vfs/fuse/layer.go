package fuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/vfs/budget"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// The cost of reads without kernel passthrough, and the remedy.
const (
	CostOfCached      = "reads of inputs go through this process and the page cache of each root"
	PassthroughAdvice = "use Linux 6.9 or later, run as root, and keep the blobs on ext4, xfs, btrfs or tmpfs"
)

const (
	// cachedRead is the largest read that is asked of this process. With
	// passthrough it is asked for none, and small buffers are quicker to make.
	cachedRead      = 1 << 20
	passthroughRead = 128 << 10
	// maxBackground limits the reads through the page cache that the kernel sends at a time. Those
	// of arriving files may wait for long, before others.
	maxBackground = 64
)

// Driver is shared by the layers of all roots.
type Driver struct {
	log          *zap.Logger
	crew         *crew.Crew // serves mounts
	requests     *requests  // nil: no counting
	warnRegister sync.Once
}

// NewDriver returns a Driver whose mounts the Crew serves, which may be nil. If metrics is not nil,
// the kernel's requests are counted there.
func NewDriver(log *zap.Logger, c *crew.Crew, metrics prometheus.Registerer) (*Driver, error) {
	d := &Driver{log: log, crew: c}
	if metrics == nil {
		return d, nil
	}
	var err error
	d.requests, err = newRequests(metrics)
	return d, err
}

// Options are the tree that a layer shows, and its place.
type Options struct {
	Name   string // of the root, in logs
	Folder string // the mount point, which Show makes, without Mount
	// Mount, if not nil, is one of Driver.Mount that no other layer has had. Its MountOptions are
	// then those of the layer, and Hooks.Look is nil.
	Mount  *Mount
	Digest digest.Digest
	Source Source
	Owner  folder.Owner // of all files
	Inodes Inodes
	// Passthrough lets the kernel read blobs itself; TryPassthrough tests it.
	Passthrough bool
	Images      Images
	Hooks       Hooks
	// Memory limits the memory for the paths that the kernel knows; nil: no limit.
	Memory *budget.Holder
}

// Images say which part of the input root images show. Zero: none.
type Images struct {
	Cover Cover
	// Blob returns the blob of a file to which images redirect, by its path. If that file does not
	// exist, the layer shows it, in BlobFolder.
	Blob func(path string) (digest.Digest, bool)
	// Watcher reports whether a thread opens files only to observe the opens of others.
	Watcher func(thread uint32) bool
}

// Hooks get the events of a layer. They are called concurrently, must not block, and must not touch
// the layer. Some may be nil.
type Hooks struct {
	// Read is called for each access that reads an input; see the package comment of vfs.
	Read func(*Node)
	// Look, which may be nil, is called for each access to a path before its answer. It is called
	// again for the same access only if the kernel has forgotten it meanwhile.
	Look func(path string, l tree.Look)
	// Blob is called for each blob whose bytes are about to be read.
	Blob func(digest.Digest)
	// Missed is called when a directory was read that an image lacks; above is the cover of its
	// parent. It may be nil if Cover is.
	Missed func(above Cover)
	// Stall, which may be nil, is called when the last access stops waiting for the Source, with
	// the time since the first one began to wait.
	Stall func(time.Duration)
}

// Layer is the read-only FUSE mount of one root.
type Layer struct {
	driver      *Driver
	log         *zap.Logger
	source      Source
	owner       folder.Owner
	passthrough bool
	blobAt      func(path string) (digest.Digest, bool)
	watcher     func(thread uint32) bool
	hooks       Hooks

	// FUSE requests carry no context; this is the one of all accesses. Hide cancels it.
	ctx    context.Context
	cancel context.CancelFunc
	loads  sync.WaitGroup // calls of the Source
	stall  stallClock
	nodes  nodeTable
	blobs  blobTable
	mount  *Mount

	lookups, absent atomic.Int64 // names that exist, and names that do not

	mu     sync.Mutex
	err    error // first error of the Source or of a directory
	hidden bool
}

// errGone: somebody has unmounted an input root, or ended its connection.
var errGone = errors.New("the mount of the input root ended while it was in use")

// NewLayer returns a layer that is not shown yet. The end of ctx ends all accesses that wait.
func (d *Driver) NewLayer(ctx context.Context, o Options) *Layer {
	l := &Layer{
		driver: d, log: d.log.With(zap.String("root", o.Name)), mount: o.Mount,
		source: o.Source, owner: o.Owner, passthrough: o.Passthrough,
		blobAt: o.Images.Blob, watcher: o.Images.Watcher, hooks: o.Hooks,
	}
	if l.mount == nil {
		l.mount = &Mount{
			driver: d, conn: mounts.NewFUSE(o.Folder, d.crew), log: l.log, passthrough: o.Passthrough,
			covered: o.Images.Cover != nil, looks: o.Hooks.Look != nil,
		}
	}
	l.ctx, l.cancel = context.WithCancel(ctx)
	l.stall.onEnd = o.Hooks.Stall
	l.blobs.init()
	l.blobs.unregister = func(id int32) { l.mount.conn.Device().Unregister(id) }
	l.nodes.inodes, l.nodes.memory = o.Inodes, o.Memory
	l.nodes.init(o.Digest, o.Images.Cover)
	return l
}

// Show mounts and serves from then on, or takes a mount over that is served already. If it fails,
// Hide undoes its work. The error wraps a mounts.Error if the machine refuses it.
func (l *Layer) Show(context.Context) error {
	l.mount.layer.Store(l)
	if l.mount.shown {
		return nil
	}
	return l.mount.show()
}

// Hide ends the connection, even if it is in use, and all accesses, and returns when all goroutines
// of the layer have ended. Later calls of Directory do not ask the Source. It does not remove the
// mount point.
func (l *Layer) Hide() error {
	l.mu.Lock()
	l.cancel() // no load begins from now on
	l.hidden = true
	l.mu.Unlock()
	err := l.mount.Hide()
	l.loads.Wait()
	l.blobs.closeFiles()
	return err
}

// InputFolder returns the folder with the inputs, except for those that images show.
func (l *Layer) InputFolder() string { return l.mount.InputFolder() }

// BlobFolder returns the folder with the blobs to which files of images redirect. It does not exist
// without images.
func (l *Layer) BlobFolder() string { return l.mount.BlobFolder() }

// Stalled returns for how long, in wall time, at least one access has waited for the Source,
// including a present wait. It never decreases.
func (l *Layer) Stalled() time.Duration { return l.stall.total() }

// Lookups returns how many existing and missing names the kernel asked for.
func (l *Layer) Lookups() (there, absent int64) { return l.lookups.Load(), l.absent.Load() }

// Err returns the first error of an access: one of the Source, that a Directory is invalid, or that
// the mount is gone before Hide. Abandoned accesses cause none.
func (l *Layer) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil && !l.hidden && l.mount.gone() {
		l.err = errGone
	}
	return l.err
}

// TryPassthrough reports whether the kernel would read file itself. The layer must be shown.
func (l *Layer) TryPassthrough(file *os.File) error {
	id, err := l.mount.conn.Device().Register(file)
	if err == nil {
		l.mount.conn.Device().Unregister(id)
	}
	return err
}

// fail notes err, met when reading n, unless an earlier one was noted.
func (l *Layer) fail(n *Node, err error) {
	if n.area == blobArea {
		l.note(fmt.Errorf("read blob %s of the input root: %w", n.Digest, err))
		return
	}
	l.failAt(n.Kind, n.Path(), err)
}

func (l *Layer) failAt(k tree.Kind, path string, err error) {
	if path == "" {
		path = "."
	}
	l.note(fmt.Errorf("read %s %s of the input root: %w", k, path, err))
}

func (l *Layer) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// countLookup counts that the kernel asked for a name.
func (l *Layer) countLookup(there bool) {
	if there {
		l.lookups.Add(1)
	} else {
		l.absent.Add(1)
	}
}

// ignored reports whether a thread opens files only to learn of opens of others.
func (l *Layer) ignored(thread uint32) bool { return l.watcher != nil && l.watcher(thread) }

// look reports an access to the input n.
func (l *Layer) look(n *Node, look tree.Look) {
	if l.hooks.Look != nil && n.area == treeArea && l.nodes.noteLook(n, look) {
		l.hooks.Look(n.Path(), look)
	}
}

// lookAbsent reports a lookup of a missing name in parent.
func (l *Layer) lookAbsent(parent *Node, name string) {
	if l.hooks.Look == nil {
		return
	}
	l.hooks.Look(joined(parent.Path(), name), tree.LookUp)
}

// joined is the path of a name in a directory.
func joined(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// findBlob returns the entry of that name beside the input root: files of blobs, and the folders on
// the way to them. Only overlayfs knows these names.
func (l *Layer) findBlob(parent *Node, name string) (tree.Entry, bool) {
	e := tree.Entry{Name: name, Kind: tree.Dir, Perm: 0o700, MTime: parent.MTime}
	if parent.area == topArea {
		return e, l.nodes.hasChild(parent, name)
	}
	path := strings.TrimPrefix(parent.Path()+"/"+name, "/")
	if d, ok := l.blobAt(path); ok {
		e.Kind, e.Digest, e.Perm = tree.File, d, 0o444
	}
	return e, true
}
