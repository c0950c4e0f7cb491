package fuse

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// A Mount is a FUSE mount and its server, which answers for one Layer. Before a layer takes it over,
// it is a folder whose entries cannot be read.
type Mount struct {
	driver      *Driver
	conn        *mounts.FUSE
	log         *zap.Logger
	passthrough bool
	covered     bool // images have parts of the root
	looks       bool // each access to a path is reported
	shown       bool // it is mounted and served
	layer       atomic.Pointer[Layer]
}

// MountOptions are the options of a layer that its mount depends on.
type MountOptions struct {
	Folder      string // the mount point, which Mount makes
	Owner       folder.Owner
	Passthrough bool
	Covered     bool // Options.Images.Cover will not be nil
}

// Mount mounts and serves ahead of a layer that is not known yet. A Layer with these options takes
// the mount over; without one, the caller ends it with Hide. Until then nobody may look into it: the
// kernel would remember the answers.
func (d *Driver) Mount(o MountOptions) (*Mount, error) {
	m := &Mount{driver: d, conn: mounts.NewFUSE(o.Folder, d.crew), log: d.log, passthrough: o.Passthrough, covered: o.Covered}
	none := Options{
		Mount: m, Digest: digest.SHA256.Empty(), Source: noSource{}, Owner: o.Owner, Inodes: NewInodes(),
		Hooks: Hooks{Read: func(*Node) {}, Blob: func(digest.Digest) {}},
	}
	if o.Covered {
		// The kernel asks for the two folders, whose nodes are the same in each layer.
		none.Images = Images{Cover: allCovered{}, Blob: func(string) (digest.Digest, bool) { return digest.Digest{}, false }}
	}
	m.layer.Store(d.NewLayer(context.Background(), none))
	if err := m.show(); err != nil {
		return nil, errors.Join(err, m.Hide())
	}
	return m, nil
}

// show makes the mount point, mounts, and serves from then on.
func (m *Mount) show() error {
	if err := os.Mkdir(m.conn.Dir(), 0o755); err != nil {
		return err
	}
	h := &handler{RawFileSystem: fuse.NewDefaultRawFileSystem(), mount: m}
	var serve fuse.RawFileSystem = h
	if m.driver.requests != nil {
		serve = &countedFS{h, m.driver.requests}
	}
	m.shown = true
	return m.conn.Start(serve, m.options())
}

// Hide ends the connection, even if it is in use, and returns when the server's goroutines have
// ended. It does not remove the mount point.
func (m *Mount) Hide() error { return m.conn.Stop() }

// gone reports whether the mount was there and is no more.
func (m *Mount) gone() bool {
	if m.conn.Device() == nil {
		return false
	}
	select {
	case <-m.conn.Device().Gone():
		return true
	default:
		return false
	}
}

// Folder returns the mount point.
func (m *Mount) Folder() string { return m.conn.Dir() }

// InputFolder and BlobFolder are those of the Layer.
func (m *Mount) InputFolder() string {
	if !m.covered {
		return m.conn.Dir()
	}
	return filepath.Join(m.conn.Dir(), treeName)
}

// BlobFolder is beside InputFolder, if the mount is Covered.
func (m *Mount) BlobFolder() string { return filepath.Join(m.conn.Dir(), blobName) }

// Moved says that the mount point has moved there, with a folder around it. No layer may have taken
// the mount over.
func (m *Mount) Moved(point string) { m.conn.Moved(point) }

func (m *Mount) options() *fuse.MountOptions {
	maxRead := cachedRead
	if m.passthrough {
		maxRead = passthroughRead
	}
	// go-fuse logs answers that came too late to matter.
	std, err := zap.NewStdLogAt(m.log, zap.DebugLevel)
	if err != nil {
		std = zap.NewStdLog(zap.NewNop())
	}
	o := &fuse.MountOptions{
		MaxWrite:             maxRead,
		MaxBackground:        maxBackground,
		DisableXAttrs:        true,
		EnableSymlinkCaching: true,
		// Only this process could change an input, so no cache is ever out of date.
		ExplicitDataCacheControl: true,
		ExtraCapabilities:        fuse.CAP_READDIRPLUS_AUTO | fuse.CAP_NO_OPENDIR_SUPPORT,
		// A listing with attributes would count as an access to every entry.
		DisableReadDirPlus: m.looks,
		MaxStackDepth:      1, // leaves room for the overlay
		Logger:             std,
		PanicHandler: func(v any) fuse.Status {
			m.layer.Load().log.Error("panic while serving an input root", zap.Any("panic", v), zap.Stack("stack"))
			return fuse.EIO
		},
	}
	if !m.passthrough {
		o.DisabledCapabilities = fuse.CAP_PASSTHROUGH
	}
	return o
}

// allCovered is the cover of a root of which images have everything.
type allCovered struct{}

func (allCovered) Whole() bool                  { return true }
func (allCovered) Child(string) (Covered, bool) { return Covered{}, false }
func (allCovered) Len() int                     { return 0 }
func (allCovered) At(int) Covered               { return Covered{} }

// noSource has nothing.
type noSource struct{}

var errNoLayer = errors.New("no input root has taken the mount over")

func (noSource) Directory(context.Context, digest.Digest) (*tree.Directory, error) {
	return nil, errNoLayer
}

func (noSource) LocalDirectory(digest.Digest) (*tree.Directory, bool) { return nil, false }

func (noSource) OpenBlob(context.Context, digest.Digest) (*os.File, error) { return nil, errNoLayer }
