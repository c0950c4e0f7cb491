package overlay

import (
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// Options are the mount point and the folders of the overlay of a root.
type Options struct {
	Point    string       // the mount point, created by Show
	Writable string       // the existing, empty folder of the writable layer
	Owner    folder.Owner // of the topmost folder
	Log      *zap.Logger
}

// A Stack is the layers below an overlay.
type Stack struct {
	Folders []string // the stacked folders, the topmost first
	// Data has folders that are visible only through redirects of files in Folders.
	Data []string
	// Identified gives the overlay a separate file system id, by which fanotify identifies it.
	Identified bool
}

// Layer is an overlayfs above any folders, which are never written to.
type Layer struct {
	path   string
	upper  Upper
	work   string
	owner  folder.Owner
	inputs Inputs
	log    *zap.Logger
	shown  bool // it is mounted
	// watched is Stack.Identified of the shown Stack.
	watched bool
}

// New returns a layer that is not shown yet. For says what its inputs are.
func New(o Options) *Layer {
	return &Layer{
		path: o.Point, upper: UpperIn(o.Writable), work: workIn(o.Writable),
		owner: o.Owner, log: o.Log,
	}
}

// For says which tree the lower layers show, before the first Top, and what the logs call the root.
func (l *Layer) For(inputs Inputs, log *zap.Logger) { l.inputs, l.log = inputs, log }

// Moved says where the mount point and the folder of the writable layer are now, whose parents have
// moved.
func (l *Layer) Moved(point, writable string) {
	l.path, l.upper, l.work = point, UpperIn(writable), workIn(writable)
}

// UpperIn returns the upper folder in the folder of a writable layer.
func UpperIn(writable string) Upper { return Upper(filepath.Join(writable, "upper")) }

// workIn returns the folder in the folder of a writable layer that overlayfs needs for itself.
func workIn(writable string) string { return filepath.Join(writable, "work") }

// Path returns the mount point of the overlay.
func (l *Layer) Path() string { return l.path }

// Upper returns the folder of written files.
func (l *Layer) Upper() Upper { return l.upper }

// Base returns the path of Upper.
func (l *Layer) Base() string { return string(l.upper) }

// Show makes the folders and mounts the overlay. It is volatile: the store either adopts the
// action's files, with its own sync, or they are dropped. The error wraps a mounts.Error if the
// machine rejects it.
func (l *Layer) Show(below Stack) error {
	for _, dir := range []string{l.path, string(l.upper), l.work} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	// The top folder has the owner of the writable layer.
	if err := l.owner.Give(string(l.upper)); err != nil {
		return err
	}
	data := "lowerdir=" + below.String() +
		",upperdir=" + escape(string(l.upper)) +
		",workdir=" + escape(l.work) +
		",redirect_dir=on,metacopy=on,index=off,xino=off,volatile"
	if below.Identified {
		data += ",uuid=on"
	}
	if err := unix.Mount(names.MountSource, l.path, "overlay", unix.MS_NODEV, data); err != nil {
		return &mounts.Error{What: "overlay", Err: err}
	}
	l.shown, l.watched = true, below.Identified
	return nil
}

// Hide unmounts the overlay, now or when its last user has ended. It removes no folder.
func (l *Layer) Hide() error {
	if !l.shown {
		return nil
	}
	err := mounts.Unmount(l.path, 0)
	if err == nil {
		return nil
	}
	l.log.Warn("processes still use an input root; they lose access to its files", zap.Error(err))
	return mounts.Unmount(l.path, unix.MNT_DETACH)
}

// String returns the notation of overlayfs: folders with colons between them, data folders after
// two colons.
func (s Stack) String() string {
	var b strings.Builder
	for i, dir := range s.Folders {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(escape(dir))
	}
	for _, dir := range s.Data {
		b.WriteString("::")
		b.WriteString(escape(dir))
	}
	return b.String()
}

// escape protects the characters that overlayfs gives a meaning.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `:`, `\:`).Replace(path)
}
