package image

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// files is a folder that FUSE shows, with a file for each grown image: the kernel mounts the file
// as an image, and reads the blocks that it needs.
type files struct {
	fuse.RawFileSystem
	conn *mounts.FUSE
	root fuse.Owner
	// watcher reports whether a thread opens files only to learn of opens of others: it must not
	// wait.
	watcher func(thread uint32) bool

	mu    sync.Mutex
	last  uint64            // number of a node
	grown map[uint64]*grown // by number and name
}

var _ fuse.RawFileSystem = (*files)(nil)

// forGood is how long the kernel may cache answers.
const forGood = 10 * 365 * 24 * time.Hour

// fileBytes is the size of each file: the maximum of an image.
const fileBytes = erofs.MaxRegionAt

// maxBackground limits the reads that the kernel sends at a time, for all grown images. Reads of
// missing directories may wait for long, before others.
const maxBackground = 64

func openFiles(dir string, watcher func(thread uint32) bool, log *zap.Logger) (*files, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	f := &files{
		RawFileSystem: fuse.NewDefaultRawFileSystem(), conn: mounts.NewFUSE(dir, nil), last: fuse.FUSE_ROOT_ID,
		root: fuse.Owner{Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}, grown: map[uint64]*grown{},
		watcher: watcher,
	}
	std, err := zap.NewStdLogAt(log, zap.DebugLevel)
	if err != nil {
		return nil, err
	}
	err = f.conn.Start(f, &fuse.MountOptions{
		MaxWrite:      128 << 10,
		MaxBackground: maxBackground,
		// The kernel must not read ahead: the blocks behind are not known yet.
		MaxReadAhead:             1,
		DisableXAttrs:            true,
		ExplicitDataCacheControl: true,
		// An image cannot lie on a stacked file system.
		DisabledCapabilities: fuse.CAP_PASSTHROUGH,
		Logger:               std,
		PanicHandler: func(v any) fuse.Status {
			log.Error("panic while serving a metadata image", zap.Any("panic", v), zap.Stack("stack"))
			return fuse.EIO
		},
	})
	if err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// close ends all reads. The content that grown images have shown so far stays in the kernel.
func (f *files) close() error { return errors.Join(f.conn.Stop(), os.Remove(f.conn.Dir())) }

// add lets the kernel read g, and returns the path of its file.
func (f *files) add(g *grown) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	g.node = f.last
	f.grown[g.node] = g
	return filepath.Join(f.conn.Dir(), strconv.FormatUint(g.node, 10))
}

// remove makes the kernel forget g, which is no longer used.
func (f *files) remove(g *grown) {
	f.mu.Lock()
	delete(f.grown, g.node)
	f.mu.Unlock()
	// Otherwise its pages would stay until memory is short. The result does not matter: the mount
	// may be gone.
	_ = f.conn.Device().DropEntry(fuse.FUSE_ROOT_ID, strconv.FormatUint(g.node, 10))
}

func (f *files) find(node uint64) *grown {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grown[node]
}

// store gives the kernel whole blocks before it asks for them.
func (f *files) store(g *grown, at int64, b []byte) error {
	const most = 64 << 10
	for len(b) > 0 {
		n := min(len(b), most)
		if err := f.conn.Device().StorePages(g.node, at, b[:n]); err != nil {
			return fmt.Errorf("store blocks of a metadata image: %w", err)
		}
		at, b = at+int64(n), b[n:]
	}
	return nil
}

func (f *files) String() string { return names.MountSource }

func (f *files) Lookup(_ <-chan struct{}, in *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	node, err := strconv.ParseUint(name, 10, 64)
	if in.NodeId != fuse.FUSE_ROOT_ID || err != nil || f.find(node) == nil {
		return fuse.ENOENT
	}
	out.NodeId, out.Generation = node, 1
	out.SetEntryTimeout(forGood)
	out.SetAttrTimeout(forGood)
	f.attr(node, &out.Attr)
	return fuse.OK
}

func (f *files) Forget(uint64, uint64) {}

func (f *files) GetAttr(_ <-chan struct{}, in *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	out.SetTimeout(forGood)
	f.attr(in.NodeId, &out.Attr)
	return fuse.OK
}

func (f *files) attr(node uint64, a *fuse.Attr) {
	*a = fuse.Attr{Ino: node, Nlink: 1, Owner: f.root, Mode: unix.S_IFREG | 0o400, Size: uint64(fileBytes)}
	if node == fuse.FUSE_ROOT_ID {
		a.Mode, a.Size = unix.S_IFDIR|0o700, 0
	}
}

func (f *files) Open(_ <-chan struct{}, in *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	if f.find(in.NodeId) == nil {
		return fuse.ENOENT
	}
	out.OpenFlags = fuse.FOPEN_KEEP_CACHE | fuse.FOPEN_NOFLUSH
	return fuse.OK
}

// Read returns all requested bytes or an error: the kernel would take missing bytes for zeros.
func (f *files) Read(cancel <-chan struct{}, in *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	g := f.find(in.NodeId)
	if g == nil || in.Offset > math.MaxInt64 {
		return nil, fuse.EIO
	}
	f.conn.Device().Pass(in.Unique) // the directories may have to come first
	b := buf[:min(int(in.Size), len(buf))]
	if !g.read(b, int64(in.Offset), Asker{Cancel: cancel, Thread: in.Pid}) {
		return nil, fuse.EIO
	}
	return fuse.ReadResultData(b), fuse.OK
}

func (f *files) StatFs(_ <-chan struct{}, _ *fuse.InHeader, out *fuse.StatfsOut) fuse.Status {
	out.Bsize, out.Frsize, out.NameLen = erofs.BlockSize, erofs.BlockSize, 255
	return fuse.OK
}
