package outputs

import (
	"os"
	"strings"

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
	depth int     // below the top

	root  *os.Root // as the command sees it; nil while it is not open
	layer layer    // its layer; nil while it is not open
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
	return &folder{full: ".", root: root, layer: o.opts.Root}
}

// to returns the folder at the path dir, whose layer is open. It closes f and those above it, as far
// as dir is not in them, and opens only those below: outputs mostly come in runs.
func (f *folder) to(dir string) *folder {
	rest, ok := below(f.full, dir)
	for !ok {
		f.close()
		f = f.above
		rest, ok = below(f.full, dir)
	}
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		f = f.child(name)
	}
	if f.enter() == nil {
		return f
	}
	// A symlink leads there, which only the root can follow.
	for f.above != nil {
		f.close()
		f = f.above
	}
	f = f.child(dir)
	f.layer = nothingKnown{}
	return f
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

// open opens the folder and its layer, and for that time those above that are needed, unless it is
// open.
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
	f.root = root
	if f.enter() != nil {
		f.layer = nothingKnown{}
	}
	return nil
}

// enter is open for the layer alone.
func (f *folder) enter() error {
	if f.layer != nil {
		return nil
	}
	if f.above.layer == nil {
		if err := f.above.enter(); err != nil {
			return err
		}
		defer f.above.leave()
	}
	known, err := f.above.layer.Enter(f.name)
	if err == nil {
		f.layer = known
	}
	return err
}

// leave closes the folder while the walk is below, if it is too deep to stay open.
func (f *folder) leave() {
	if f.depth > keptOpen && f.depth%keptEvery != 0 {
		f.close()
	}
}

func (f *folder) close() {
	if f.above == nil {
		return
	}
	if f.root != nil {
		_ = f.root.Close()
	}
	if known, ok := f.layer.(vfs.Dir); ok {
		known.Close()
	}
	f.root, f.layer = nil, nil
}
