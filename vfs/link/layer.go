package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// ErrInputChanged is wrapped by the errors of Bare.Intact.
var ErrInputChanged = errors.New("an input was changed in place")

// maxNamed is how many inputs an error names.
const maxNamed = 5

// LayerOptions are the tree that a layer shows, and its place.
type LayerOptions struct {
	Folder string // created by Show
	Digest digest.Digest
	Source Source
	Owner  folder.Owner // of the folders
}

// Layer is the folders of hard links of one root. If Show fails, Hide undoes its work.
type Layer struct {
	store  *Store
	root   digest.Digest
	still  bool // it must not be written to
	shares bool // kept trees may stand for parts of it
	made   bool // the folder is ours
	own    *maker

	strange []uint32    // if it is still: the number of foreign changes of each copy when it was shown
	kept    []*keptTree // in use by this root
	toKeep  []dirAt     // that this root makes kept trees of
}

// NewLayer returns a layer that is not shown yet.
func (s *Store) NewLayer(o LayerOptions) *Layer {
	return &Layer{
		store: s, root: o.Digest, still: !s.copies.bare, shares: !s.copies.bare && s.kept != nil,
		own: s.newMaker(o.Folder, o.Owner, o.Source),
	}
}

func (s *Store) newMaker(dir string, owner folder.Owner, source Source) *maker {
	return &maker{
		base: dir, owner: owner, inputs: inputs{source}, copies: s.copies, log: s.log,
		byKey: map[fileKey]*sharedFile{}, byIno: map[uint64]linkAt{},
	}
}

// Folders returns the folders with the inputs, to be stacked, the topmost first.
func (l *Layer) Folders() []string {
	dirs := []string{l.own.base}
	for _, t := range l.kept {
		dirs = append(dirs, t.dir)
	}
	return dirs
}

// Show loads the whole tree and makes the links. It blocks until it is complete, or ctx ends.
func (l *Layer) Show(ctx context.Context) error {
	if err := os.Mkdir(l.own.base, 0o755); err != nil {
		return err
	}
	l.made = true
	lists, err := l.own.inputs.list(ctx, l.root)
	if err != nil {
		return err
	}
	l.own.spread(dirAt{digest: l.root, list: lists.dirs[l.root]}, lists, func(d dirAt) bool { return l.share(d, lists) })
	if err := l.keep(ctx, lists); err != nil {
		return err
	}
	l.tellApart()
	if err := l.own.make(ctx); err != nil {
		return err
	}
	l.own.plan = plan{}
	if l.still {
		l.each(func(s *sharedFile) bool {
			l.strange = append(l.strange, s.strangers())
			return true
		})
	}
	return nil
}

// Hide moves the folder away, to be removed later.
func (l *Layer) Hide() error {
	var err error
	if l.made {
		err = l.store.trash.PutWith(l.own.base, l.store.copies.unlink)
	}
	l.store.copies.release(l.own.links)
	l.letGo()
	return err
}

// tellApart chooses the copies that the root itself leads to: no kept tree that it shows does.
func (l *Layer) tellApart() {
	taken := func(fileKey) bool { return false }
	if len(l.kept) > 0 {
		k := l.store.kept
		k.mu.Lock()
		defer k.mu.Unlock()
		taken = func(key fileKey) bool { return slices.Contains(l.kept, k.held[key]) }
	}
	l.own.number(taken)
}

// share reports whether a kept tree replaces d and everything below it, or must be made for that.
func (l *Layer) share(d dirAt, lists *listing) bool {
	if !l.shares || len(l.kept)+len(l.toKeep) >= maxKeptLayers || lists.size(d.digest, 0) < minKeptEntries {
		return false
	}
	t, mine := l.store.kept.look(l.keyOf(d))
	switch {
	case t != nil:
		l.kept = append(l.kept, t)
	case mine:
		l.toKeep = append(l.toKeep, d)
	}
	return t != nil || mine
}

// keep makes the trees that will be kept, and uses them.
func (l *Layer) keep(ctx context.Context, lists *listing) error {
	for ; len(l.toKeep) > 0; l.toKeep = l.toKeep[1:] {
		t, err := l.makeKept(ctx, l.toKeep[0], lists)
		if err != nil {
			return err // letGo reports that they are not made
		}
		l.store.kept.add(t)
		l.kept = append(l.kept, t)
	}
	return nil
}

// makeKept links the tree of d in a folder of its own.
func (l *Layer) makeKept(
	ctx context.Context, d dirAt, lists *listing,
) (_ *keptTree, err error) {
	sub := l.store.newMaker(l.store.kept.newDir(), l.own.owner, l.own.inputs.Source)
	t := &keptTree{key: l.keyOf(d), dir: sub.base}
	defer func() {
		t.links = sub.links
		if err != nil {
			err = errors.Join(err, l.store.kept.drop(t))
		}
	}()
	if err := os.MkdirAll(filepath.Join(sub.base, filepath.Dir(d.path)), 0o755); err != nil {
		return nil, err
	}
	sub.spread(d, lists, func(dirAt) bool { return false })
	l.store.kept.hold(t, &sub.plan)
	if err := sub.make(ctx); err != nil {
		return nil, err
	}
	return t, t.become(sub, d)
}

func (l *Layer) keyOf(d dirAt) keptKey { return keptKey{d.path, d.digest, l.own.owner} }

// letGo ends the use of kept trees, and the promise to make others.
func (l *Layer) letGo() {
	if !l.shares {
		return
	}
	for _, d := range l.toKeep {
		l.store.kept.forget(l.keyOf(d))
	}
	l.store.kept.release(l.kept)
}

// each calls f for every copy that the root has a link to, until it returns false.
func (l *Layer) each(f func(*sharedFile) bool) {
	for _, s := range l.own.links {
		if !f(s) {
			return
		}
	}
	for _, t := range l.kept {
		for _, s := range t.links {
			if !f(s) {
				return
			}
		}
	}
}

// Stale reports whether Vouch would have to read files; it does not wait.
func (l *Layer) Stale(due time.Time) (stale bool) {
	l.each(func(s *sharedFile) bool {
		stale = !s.said.Since(due)
		return !stale
	})
	return stale
}

// Vouch reads the copies that were last verified before due, or were changed since. It also checks
// whether another process has changed them or their names since Show, unless the action may do
// that: a file that is right again may have been wrong when it was read. The error wraps
// vouch.ErrDamaged if anything is wrong; no other root gets it from then on.
func (l *Layer) Vouch(ctx context.Context, due time.Time) error {
	var errs []error
	i := 0
	l.each(func(s *sharedFile) bool {
		err := l.store.copies.verify(ctx, s, due)
		if err == nil && l.still && s.strangers() != l.strange[i] {
			err = fmt.Errorf("copy of blob %s: %w: its file was written to, and is right again", s.key.digest, vouch.ErrDamaged)
		}
		if err != nil && len(errs) < maxNamed {
			errs = append(errs, err)
		}
		i++
		return ctx.Err() == nil
	})
	if l.still {
		errs = append(errs, l.own.names.check())
		for _, t := range l.kept { // a changed one is dropped before its next use
			errs = append(errs, t.names.check())
		}
	}
	return errors.Join(errs...)
}
