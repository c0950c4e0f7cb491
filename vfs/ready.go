package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// readyRoots has roots that are mounted before their inputs are known, for the next actions of the
// same owners. No action has seen one: each is used once, and only the worker can enter it before.
type readyRoots struct {
	fs   *FS
	most int // spare roots

	maker sync.WaitGroup // of at most one goroutine, which runs while wanted is not empty

	mu     sync.Mutex
	spare  []*bareRoot   // the oldest first
	wanted []bareKind    // of roots to make; the first one is being made
	recent []shownImages // of the last roots with images, at most as many as spare roots
	made   int           // roots so far, to name their folders
	closed bool
}

// A bareKind is what the mounts of a root depend on.
type bareKind struct {
	owner  Owner
	images shownImages
}

func (k bareKind) equal(o bareKind) bool { return k.owner == o.owner && k.images.equal(o.images) }

// A bareRoot has all of a root but its inputs. Its overlay keeps the images that are no longer
// mounted, as no other root will show them.
type bareRoot struct {
	kind             bareKind
	points, writable ownFolder
	mount            *fuse.Mount
	over             *overlay.Layer
}

// take returns a spare root of that owner with these images, nil if there is none.
func (p *readyRoots) take(owner Owner, images shownImages) *bareRoot {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.spare, func(b *bareRoot) bool { return b.kind.equal(bareKind{owner, images}) })
	if i < 0 {
		return nil
	}
	b := p.spare[i]
	p.spare = slices.Delete(p.spare, i, i+1)
	return b
}

// want has a root of that owner made, with these images. Owners that use several roots at a time
// will have as many spare ones, because they want one each time that they have taken, or found none.
// One with images is made only if one of the last roots had the same images, of any owner: of more
// kinds than there are spare roots, each would be dropped before it is needed.
func (p *readyRoots) want(owner Owner, images shownImages) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if images.any() {
		again := slices.ContainsFunc(p.recent, images.alike)
		if p.recent = append(p.recent, images); len(p.recent) > p.most {
			p.recent = slices.Delete(p.recent, 0, 1)
		}
		if !again {
			return
		}
	}
	if p.closed || len(p.wanted) >= p.most {
		return
	}
	p.wanted = append(p.wanted, bareKind{owner, images})
	if len(p.wanted) == 1 {
		p.maker.Add(1)
		p.fs.crew.Go(func() {
			defer p.maker.Done()
			p.makeAll()
		})
	}
}

// makeAll makes the wanted roots. A failure is not repeated: the next action makes its own root, and
// reports why it cannot.
func (p *readyRoots) makeAll() {
	for {
		p.mu.Lock()
		kind := p.wanted[0]
		p.made++
		name := names.ReadyRoot + strconv.Itoa(p.made)
		p.mu.Unlock()
		b, err := p.fs.newBareRoot(name, kind)
		if err != nil {
			p.fs.log.Debug("cannot make an input root ahead", zap.Error(err))
		}
		p.mu.Lock()
		var old *bareRoot
		if err == nil {
			p.spare = append(p.spare, b)
		}
		if len(p.spare) > p.most {
			old = p.spare[0]
			p.spare = slices.Delete(p.spare, 0, 1)
		}
		p.wanted = p.wanted[1:]
		over := len(p.wanted) == 0 || p.closed
		p.mu.Unlock()
		if old != nil {
			p.fs.drop(old)
		}
		if over {
			return
		}
	}
}

// close drops all roots. Nobody may want one at the same time. p may be nil.
func (p *readyRoots) close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.maker.Wait()
	var errs []error
	for _, b := range p.spare {
		errs = append(errs, p.fs.release(b))
	}
	p.spare = nil
	return errors.Join(errs...)
}

// newBareRoot makes the folders and the mounts of a root. After an error there is nothing left of
// it.
func (f *FS) newBareRoot(name string, kind bareKind) (*bareRoot, error) {
	b := &bareRoot{kind: kind}
	b.points, b.writable = f.foldersOf(name)
	if err := f.show(b); err != nil {
		return nil, errors.Join(err, f.release(b))
	}
	return b, nil
}

func (f *FS) show(b *bareRoot) (err error) {
	if err := b.points.makeClosed(); err != nil {
		return err
	}
	if err := b.writable.makeClosed(); err != nil {
		return err
	}
	b.mount, err = f.driver.Mount(fuse.MountOptions{
		Folder: fusePoint(b.points.path), Owner: b.kind.owner, Passthrough: f.means == fusePassthrough,
		Covered: b.kind.images.any(),
	})
	if err != nil {
		return err
	}
	b.over = overlay.New(overlay.Options{
		Point: overlayPoint(b.points.path), Writable: b.writable.path, Owner: b.kind.owner, Log: f.log,
	})
	return b.over.Show(b.kind.images.stack(b.mount))
}

// moveTo gives the mount points the place of a root with a name. The folder of written files keeps
// its name, unless it is among them.
func (b *bareRoot) moveTo(points string) error {
	if err := os.Rename(b.points.path, points); err != nil {
		return err
	}
	b.points.path = points
	if b.writable.memory > 0 {
		b.writable.path = filepath.Join(points, layerName)
	}
	b.mount.Moved(fusePoint(points))
	b.over.Moved(overlayPoint(points), b.writable.path)
	return nil
}

// release undoes show, however far it came.
func (f *FS) release(b *bareRoot) error {
	var errs []error
	if b.over != nil {
		errs = append(errs, b.over.Hide())
	}
	if b.mount != nil {
		errs = append(errs, b.mount.Hide())
	}
	return errors.Join(append(errs, b.writable.drop(f.trash), b.points.removePoints(overlayPoint(b.points.path), fusePoint(b.points.path)))...)
}

// drop is release for a root that is no longer needed.
func (f *FS) drop(b *bareRoot) {
	if err := f.release(b); err != nil {
		f.log.Warn("an input root that was made ahead was not released", zap.Error(err))
	}
}

// foldersOf returns the folders of a root, which do not exist yet.
func (f *FS) foldersOf(name string) (points, writable ownFolder) {
	points.path = filepath.Join(f.points.dir, name)
	writable.path = filepath.Join(f.upperDir, name)
	if f.upperMemory > 0 && f.means.method() == FUSE {
		writable = ownFolder{path: filepath.Join(points.path, layerName), memory: f.upperMemory}
	}
	return points, writable
}

// The mount points in the folder of a root.
func overlayPoint(points string) string { return filepath.Join(points, "root") }
func fusePoint(points string) string    { return filepath.Join(points, "lower") }

// isReserved reports whether no root can have a name.
func isReserved(name string) bool {
	return name == trashName || name == linksName || name == plainName || strings.HasPrefix(name, names.ReadyRoot)
}

// canBeReady reports whether the root is one that can be made ahead: its mounts depend on nothing but
// its owner and images that other roots show, too.
func (r *Root) canBeReady() bool {
	return r.fs.ready != nil && r.plain == nil && r.spec.OnLook == nil && r.spec.Name != probeName &&
		(r.images == nil || !r.images.Grown())
}
