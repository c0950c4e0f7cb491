package vfs

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/link"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// A root has two layers: the lower one holds the inputs, the upper one takes
// what the action does to them. What show has done when it fails is for hide to
// undo; hide is called once, the upper layer's first, whether or not show was.

// A lowerLayer lets the inputs appear in folders.
type lowerLayer interface {
	// Folders are those in which they appear, one over the other, the topmost first.
	Folders() []string
	// Show blocks until the inputs are there. The end of ctx ends Show only.
	Show(ctx context.Context) error
	Hide() error
	// Stale reports whether Vouch would have to read something; it waits for nothing.
	Stale(due time.Time) bool
	// Vouch is Root.Vouch of what was last seen to be right before due.
	Vouch(ctx context.Context, due time.Time) error
}

var (
	_ lowerLayer = fuseLayer{}
	_ lowerLayer = (*link.Layer)(nil)
)

// An upperLayer is what the action sees; its answers are those of the methods
// of Root with their names.
type upperLayer interface {
	Path() string
	show() error
	hide() error
	// Unchanged also returns the path among the inputs.
	Unchanged(names []string) (in tree.Entry, from string, ok bool)
	Written(names []string) (string, bool)
	intact() error
	// scratch is the folder of what the action writes; linked: inputs are in it, too,
	// with more than one link.
	scratch() (dir string, linked bool)
}

var (
	_ upperLayer = overlayLayer{}
	_ upperLayer = bareLayer{}
)

// arrange gives r the layers that this machine allows.
func (r *Root) arrange() {
	if r.isPlain() {
		r.lower, r.upper = noInputs{}, plainLayer{r}
		return
	}
	if r.fs.method == HardLink {
		links := r.fs.links.NewLayer(link.LayerOptions{
			Folder: filepath.Join(r.layerPath(), "lower"), Digest: r.spec.Digest, Source: r.spec.Source, Owner: r.owner,
			ReadOnly: r.fs.overlay,
		})
		r.lower, r.upper = links, bareLayer{link.NewBare(links, r.directory)}
	} else {
		r.lower = fuseLayer{r}
	}
	if r.fs.overlay {
		r.upper = newOverlayLayer(r)
	}
}

// fuseLayer is the read-only FUSE mount, whose state the Root holds.
type fuseLayer struct{ r *Root }

func (l fuseLayer) Folders() []string { return []string{l.r.lowerPath()} }

func (l fuseLayer) Show(context.Context) error {
	if err := os.Mkdir(l.r.lowerPath(), 0o755); err != nil {
		return err
	}
	return l.r.mountLower()
}

// Hide returns when all of the server's goroutines are gone.
func (l fuseLayer) Hide() error {
	var err error
	if l.r.lowerUp {
		err = l.r.unmountLower()
	}
	if l.r.served != nil {
		<-l.r.served
	}
	return err
}

// overlayLayer is an overlayfs above any lower layer.
type overlayLayer struct {
	*overlay.Layer
	r *Root
}

func newOverlayLayer(r *Root) overlayLayer {
	return overlayLayer{overlay.New(overlay.Options{
		Point: filepath.Join(r.pointPath(), "root"), Writable: r.layerPath(), Owner: r.owner,
		Inputs: overlay.Inputs{Root: r.spec.Digest, Directory: r.directory},
		Log:    r.fs.log.With(zap.String("root", r.spec.Name)),
	}), r}
}

func (l overlayLayer) show() error {
	if err := l.Show(l.r.stack()); err != nil || len(l.r.grafts) == 0 {
		return err
	}
	if err := l.r.fs.watcher.watch(l.r); err != nil {
		l.r.fs.log.Warn("cannot see what an action reads of metadata images", zap.Error(err))
	}
	return nil
}

func (l overlayLayer) hide() error {
	if l.r.watched {
		l.r.fs.watcher.forget(l.r)
	}
	return l.Hide()
}

func (l overlayLayer) intact() error           { return nil }
func (l overlayLayer) scratch() (string, bool) { return string(l.Upper()), false }

// stack lists what lies below the writable layer. With images it is the
// FUSE layer (with what they lack), the images, and where the
// files of images have their data: the folder of the blobs that are local, and
// for those that are not the FUSE layer once more.
func (r *Root) stack() overlay.Stack {
	if r.cover == nil {
		return overlay.Stack{Folders: r.lower.Folders()}
	}
	s := overlay.Stack{
		Identified: true, // for the watcher
		Data:       []string{r.fs.images.blobs.Dir, filepath.Join(r.lowerPath(), blobName)},
	}
	if !r.cover.empty() {
		s.Folders = append(s.Folders, filepath.Join(r.lowerPath(), treeName))
	}
	for _, g := range r.grafts {
		s.Folders = append(s.Folders, g.point)
	}
	return s
}

// bareLayer is a folder of hard links that nothing lies on.
type bareLayer struct{ link.Bare }

func (l bareLayer) show() error             { return nil } // the lower layer has done it
func (l bareLayer) hide() error             { return nil }
func (l bareLayer) intact() error           { return l.Intact() }
func (l bareLayer) scratch() (string, bool) { return l.Path(), true }
