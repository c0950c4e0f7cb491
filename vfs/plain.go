package vfs

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/overlay"
)

// maxSpare bounds the folders that are kept for plain roots to come.
const maxSpare = 64

// noInputs is the lower layer where there is nothing to show.
type noInputs struct{}

var _ lowerLayer = noInputs{}

func (noInputs) Folders() []string          { return nil }
func (noInputs) Show(context.Context) error { return nil }
func (noInputs) Hide() error                { return nil }

// plainLayer is the root of an action without inputs. Nothing can be read or looked up
// there, and so it needs no mount: it is a folder, which another root gets after an
// action that left it untouched.
type plainLayer struct{ r *Root }

var _ upperLayer = plainLayer{}

// isPlain reports whether r needs no mount. It does where somebody wants to be told
// that an action found nothing, or where memory bounds what it writes.
func (r *Root) isPlain() bool {
	return r.spec.Digest.IsEmptyBlob() && r.spec.OnLook == nil && r.fs.upperMemory == 0
}

func (l plainLayer) Path() string { return l.r.upperPath() }

func (l plainLayer) show() error { return l.r.findFolder() }

func (l plainLayer) hide() error {
	if folder := l.r.folder; folder != nil && l.r.vacated.Load() && folder.Untouched() && l.r.fs.spareFolder(folder) {
		l.r.layerMade = false // and is not removed
	}
	return nil
}

func (l plainLayer) Unchanged([]string) (in tree.Entry, from string, ok bool) { return in, "", false }

func (l plainLayer) Written(names []string) (string, bool) {
	return overlay.Upper(l.r.upperPath()).Written(names)
}
func (l plainLayer) intact() error           { return nil }
func (l plainLayer) scratch() (string, bool) { return l.r.upperPath(), false }

// findFolder gives the root an empty folder of its owner, in one that keeps others out.
func (r *Root) findFolder() (err error) {
	f := r.fs
	f.mu.Lock()
	i := slices.IndexFunc(f.spare, func(s *folder.Folder) bool { return s.Owner() == r.owner })
	if i >= 0 {
		r.folder, r.layerMade = f.spare[i], true
		r.layer = filepath.Dir(r.folder.Path())
		f.spare = slices.Delete(f.spare, i, i+1)
		f.mu.Unlock()
		return nil
	}
	f.plain++
	r.layer = filepath.Join(f.plainDir(), strconv.Itoa(f.plain))
	f.mu.Unlock()
	if err := os.MkdirAll(f.plainDir(), 0o755); err != nil {
		return err
	}
	if err := r.makeFolder(r.layer, &r.layerMade); err != nil {
		return err
	}
	r.folder, err = folder.Make(r.upperPath(), 0o755, r.owner)
	return err
}

// spareFolder keeps a folder, unless there are enough.
func (f *FS) spareFolder(folder *folder.Folder) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.spare) >= maxSpare {
		return false
	}
	f.spare = append(f.spare, folder)
	return true
}
