package outputs

import (
	"os"

	"github.com/forerunner-build/forerunner/vfs"
)

const (
	// keptOpen is how deep all folders on the way to where the walk is stay open; below that each
	// keptEvery-th does, so that deep ones cost neither many descriptors nor the way from the top.
	keptOpen  = 64
	keptEvery = 32
)

// A folder of the input root, which the walk goes through from descriptor to descriptor: by a path
// from the top, each file would cost as much as it is deep.
type folder struct {
	above *folder // nil at the top
	name  string  // there
	full  string  // from the top; "." is the top
	depth int     // below the output directory

	root  *os.Root // as the command sees it; nil while it is not open
	layer layer    // its layer while it is open
}

// A layer is Root for names instead of paths: Root itself, or a vfs.Dir.
type layer interface {
	Unchanged(name string) (vfs.Input, bool)
	Written(name string) (string, bool)
	Enter(name string) (vfs.Dir, error)
}

// nothingKnown is the layer of a folder without known inputs, such as the target of a symlink.
type nothingKnown struct{}

func (nothingKnown) Unchanged(string) (vfs.Input, bool) { return vfs.Input{}, false }
func (nothingKnown) Written(string) (string, bool)      { return "", false }
func (nothingKnown) Enter(string) (vfs.Dir, error)      { return nil, os.ErrNotExist }

// topFolder is the input root, which stays open.
func (o *Outputs) topFolder(root *os.Root) *folder {
	return &folder{full: ".", depth: -1, root: root, layer: o.opts.Root}
}

// child is the folder called name in f, not open.
func (f *folder) child(name string) *folder {
	return &folder{above: f, name: name, full: f.path(name), depth: f.depth + 1}
}

// path returns the path of name in f.
func (f *folder) path(name string) string {
	if f.full == "." {
		return name
	}
	return f.full + "/" + name
}

// open opens the folder, and for that time those above that are needed, unless it is open.
func (f *folder) open() error {
	if f.root != nil {
		return nil
	}
	if f.above.root == nil {
		if err := f.above.open(); err != nil {
			return err
		}
		defer f.above.leave()
	}
	root, err := f.above.root.OpenRoot(f.name)
	if err != nil {
		return err
	}
	f.root, f.layer = root, nothingKnown{}
	if known, err := f.above.layer.Enter(f.name); err == nil {
		f.layer = known
	}
	return nil
}

// leave closes the folder while the walk is below, if it is too deep to stay open.
func (f *folder) leave() {
	if f.depth > keptOpen && f.depth%keptEvery != 0 {
		f.close()
	}
}

func (f *folder) close() {
	if f.root == nil || f.above == nil {
		return
	}
	_ = f.root.Close()
	if known, ok := f.layer.(vfs.Dir); ok {
		known.Close()
	}
	f.root, f.layer = nil, nil
}
