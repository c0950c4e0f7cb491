package vfs

import (
	"context"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/copied"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// A lowerLayer shows the inputs in folders. If Show fails, Hide undoes its work; Hide is called
// once, whether or not Show was.
type lowerLayer interface {
	// Show blocks until the inputs can be read. The end of ctx ends only Show.
	Show(ctx context.Context) error
	Hide() error
}

var (
	_ lowerLayer = (*fuse.Layer)(nil)
	_ lowerLayer = (*link.Layer)(nil)
)

// An upperLayer is the layer that the action sees. It is called only between show and hide.
type upperLayer interface {
	Path() string
	// Base is the folder to which paths of written files are relative.
	Base() string
}

var (
	_ upperLayer = (*overlay.Layer)(nil)
	_ upperLayer = link.Bare{}
)

// A voucher has files that several roots share.
type voucher interface {
	// Stale reports whether Vouch would have to read files; it does not wait.
	Stale(due time.Time) bool
	// Vouch is Root.Vouch of files that were last verified before due.
	Vouch(ctx context.Context, due time.Time) error
}

var (
	_ voucher = (*image.View)(nil)
	_ voucher = (*link.Layer)(nil)
)

// arrange gives r the layers that this machine allows.
func (r *Root) arrange() {
	if r.spec.Digest.IsEmptyBlob() && r.spec.OnLook == nil && r.fs.upperMemory == 0 {
		// It needs no mount, unless OnLook must learn of lookups that found nothing, or memory
		// limits the files that it writes.
		r.usePlain(&plainLayer{all: r.fs.plain, owner: r.owner})
		return
	}
	if l := r.copyInputs(); l != nil {
		r.usePlain(l)
		return
	}
	if r.fs.means.method() == HardLink {
		r.links = r.fs.links.NewLayer(r.linkOptions())
		bare := link.NewBare(r.links, r.directory)
		r.lower, r.upper, r.shared = r.links, bare, r.links
		r.top = topOf(r, bare.Top)
	} else {
		r.addImages()
		var mount *fuse.Mount
		if r.canBeReady() {
			mount = r.takeReady()
		}
		r.inputs = r.fs.driver.NewLayer(r.ctx, r.fuseOptions(mount))
		r.lower = r.inputs
		r.waiter.inputs.Store(r.inputs)
	}
	if !r.fs.means.overlay() {
		return
	}
	if r.over == nil {
		r.over = overlay.New(overlay.Options{
			Point: overlayPoint(r.points.path), Writable: r.writable.path, Owner: r.owner, Log: r.fs.log,
		})
	}
	r.over.For(overlay.Inputs{Root: r.spec.Digest, Directory: r.directory}, r.fs.log.With(zap.String("root", r.spec.Name)))
	r.upper, r.top = r.over, topOf(r, r.over.Top)
}

// usePlain makes l all there is of the root.
func (r *Root) usePlain(l *plainLayer) {
	r.plain, r.upper, r.top = l, l, topOf(r, l.Top)
	if l.copies != nil {
		r.top = topOf(r, l.copies.Top)
	}
}

// copyInputs returns the root with copies of its inputs; nil: it needs mounts.
func (r *Root) copyInputs() *plainLayer {
	src, ok := r.spec.Source.(CopySource)
	if !ok || r.fs.copier == nil || r.spec.OnLook != nil {
		return nil
	}
	t, ok := copied.Read(src, r.spec.Digest, r.fs.copyBytes)
	if !ok {
		return nil
	}
	l := &plainLayer{all: r.fs.plain, owner: r.owner}
	err := l.show(t.Folders(r.spec.Folders))
	if err == nil {
		err = l.copyInputs(r.fs.copier, t, r.copyOpened)
	}
	if err == nil {
		return l
	}
	r.fs.warnOfCopy(r.spec.Name, err)
	if err := l.hide(false); err != nil {
		r.fs.log.Warn("copies of inputs were not removed", zap.String("root", r.spec.Name), zap.Error(err))
	}
	return nil
}

// copyOpened notes that the action has opened a copy, which was verified when it was made.
func (r *Root) copyOpened(path string, e tree.Entry) {
	r.reads.opened(path, e)
	if e.Kind == File && r.spec.OnCopyRead != nil {
		r.spec.OnCopyRead(e.Digest)
	}
}

// takeReady takes a root that was made ahead, and returns the mount for its inputs; nil: there is
// none.
func (r *Root) takeReady() *fuse.Mount {
	b := r.fs.ready.take(r.owner, r.shownImages())
	if b == nil {
		return nil
	}
	if err := b.moveTo(r.points.path); err != nil {
		r.fs.log.Warn("an input root that was made ahead cannot be used", zap.Error(err))
		r.fs.drop(b)
		return nil
	}
	r.wasReady = true
	r.points, r.writable, r.over = b.points, b.writable, b.over
	return b.mount
}

func (r *Root) linkOptions() link.LayerOptions {
	o := link.LayerOptions{
		Folder: filepath.Join(r.writable.path, "lower"), Digest: r.spec.Digest, Source: r.spec.Source, Owner: r.owner,
	}
	if r.fs.means.overlay() {
		o.Folder = filepath.Join(r.fs.linkDir(), linkedName, r.spec.Name)
		o.Owner = r.fs.linkViews.ownerOf(r.owner)
	}
	return o
}

// addImages lets the root show its trees by images. Images are not used if lookups of names must be
// reported.
func (r *Root) addImages() {
	if r.fs.images == nil || r.spec.OnLook != nil {
		return
	}
	r.images = r.fs.images.View(r.spec.Digest, r.spec.Source, r.owner,
		image.Hooks{Opened: r.reads.opened, Blob: r.tellBlobRead}, &r.waiter)
	if r.images != nil {
		r.shared = r.images
	}
}

func (r *Root) fuseOptions(mount *fuse.Mount) fuse.Options {
	o := fuse.Options{
		Name: r.spec.Name, Folder: fusePoint(r.points.path), Mount: mount, Digest: r.spec.Digest, Source: r.spec.Source, Owner: r.owner,
		Inodes: r.reads.inodes, Passthrough: r.fs.means == fusePassthrough, Memory: r.memory,
		Hooks: fuse.Hooks{Read: r.reads.read, Look: r.spec.OnLook, Blob: r.tellBlob, Stall: r.spec.OnStall},
	}
	if r.fs.images != nil {
		o.Images.Watcher = r.fs.images.Serves
	}
	if r.images != nil && r.images.Cover() != nil {
		o.Images.Cover, o.Images.Blob = coverOf(r.images.Cover()), r.images.Blob
		o.Hooks.Missed = func(above fuse.Cover) { r.images.Missed(above.(imageCover).Cover) }
	}
	return o
}

// stack lists the layers below the writable one.
func (r *Root) stack() overlay.Stack {
	if r.links != nil {
		return overlay.Stack{Folders: r.fs.linkViews.seenBy(r.owner, r.links.Folders())}
	}
	return r.shownImages().stack(r.inputs)
}

// shownImages are the images that a root shows. Zero: none.
type shownImages struct {
	blobs  string   // folder of the local blobs
	points []string // mount points of the images
	all    bool     // they have all of the input root
}

func (r *Root) shownImages() (s shownImages) {
	if r.images != nil && r.images.Cover() != nil {
		s = shownImages{r.images.BlobDir(), r.images.Folders(), r.images.Cover().Empty()}
	}
	return s
}

// equal reports whether roots of one owner with these images have the same mounts: no mount point
// has ever been another image's.
func (s shownImages) equal(o shownImages) bool {
	return s.blobs == o.blobs && s.all == o.all && slices.Equal(s.points, o.points)
}

// alike reports whether roots of any owners with these images show the same ones.
func (s shownImages) alike(o shownImages) bool {
	return slices.EqualFunc(s.points, o.points, func(a, b string) bool { return filepath.Dir(a) == filepath.Dir(b) })
}

// any reports whether there are any.
func (s shownImages) any() bool { return len(s.points) > 0 }

// stack lists the layers of a root above inputs, a fuse.Layer or its fuse.Mount. With images these
// are the images, the FUSE layer (with the rest of the tree), and the places of the data of the
// images' files: the folder of the local blobs, and for others the FUSE layer once more. Images are
// the first, so that FUSE is not asked for names in directories of which they have all. Overlayfs
// looks for the data in the layers below the image, too: image.Cache.View makes sure that it finds
// nothing there.
func (s shownImages) stack(inputs interface {
	InputFolder() string
	BlobFolder() string
},
) overlay.Stack {
	if !s.any() {
		return overlay.Stack{Folders: []string{inputs.InputFolder()}}
	}
	o := overlay.Stack{
		Identified: true, // tells the images which files are opened in it
		Data:       []string{s.blobs, inputs.BlobFolder()},
	}
	o.Folders = slices.Clone(s.points)
	if !s.all {
		o.Folders = append(o.Folders, inputs.InputFolder())
	}
	return o
}

// imageWaiter lets images wait for missing blobs as FUSE does.
type imageWaiter struct {
	inputs atomic.Pointer[fuse.Layer] // set before the root is used
}

// Await implements image.Waiter.
func (w *imageWaiter) Await(a image.Asker, path string, d digest.Digest) (*tree.Directory, error) {
	return w.inputs.Load().Directory(a.Cancel, a.Thread, path, d)
}

// Fail implements image.Waiter.
func (w *imageWaiter) Fail(path string, err error) { w.inputs.Load().FailDirectory(path, err) }

// imageCover translates the content of images for FUSE.
type imageCover struct{ *image.Cover }

func coverOf(c *image.Cover) fuse.Cover {
	if c == nil {
		return nil // and not an interface that holds nil
	}
	return imageCover{c}
}

// Child implements fuse.Cover.
func (c imageCover) Child(name string) (fuse.Covered, bool) {
	found, ok := c.Cover.Child(name)
	return fuse.Covered{Entry: found.Entry, Rest: coverOf(found.Rest)}, ok
}

// At implements fuse.Cover.
func (c imageCover) At(i int) fuse.Covered {
	at := c.Cover.At(i)
	return fuse.Covered{Entry: at.Entry, Rest: coverOf(at.Rest)}
}
