package link

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/overlay"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

var oldTime = time.Unix(tree.DefaultMTime, 0)

const aDay = 24 * time.Hour

// A linkFarm is a Store and a folder for roots of its links, each below an overlay or bare.
type linkFarm struct {
	*Store
	dir     string
	bare    bool
	vouched time.Duration // how long copies that were right are believed
	serial  int
}

type linkFarmOptions struct {
	Dir      string // one of the test if empty
	Bare     bool
	MaxBytes int64
	Damaged  func(d digest.Digest, file string)
}

func openLinkFarm(t testing.TB, o linkFarmOptions) *linkFarm {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	log := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel))
	trash := folder.NewTrash(filepath.Join(o.Dir, ".trash"), nil, log)
	s, err := Open(Options{
		Dir: filepath.Join(o.Dir, ".links"), MaxBytes: o.MaxBytes, Bare: o.Bare, Trash: trash, Log: log, Damaged: o.Damaged,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(trash.Put(filepath.Join(o.Dir, ".links")), trash.Close()); err != nil {
			t.Error(err)
		}
	})
	return &linkFarm{Store: s, dir: o.Dir, bare: o.Bare, vouched: aDay}
}

// bothWays runs a test with links below an overlay and without one.
func bothWays(t *testing.T, test func(t *testing.T, f *linkFarm)) {
	t.Run("overlay", func(t *testing.T) { test(t, openLinkFarm(t, linkFarmOptions{})) })
	t.Run("bare", func(t *testing.T) { test(t, openLinkFarm(t, linkFarmOptions{Bare: true})) })
}

type rootSpec struct {
	Digest digest.Digest
	Source Source
	Owner  *folder.Owner
}

// root is a layer with the layers above it.
type root struct {
	*Layer
	farm *linkFarm
	dir  string
	bare Bare           // if there is no overlay
	over *overlay.Layer // else
}

func (f *linkFarm) newRoot(ctx context.Context, spec rootSpec) (*root, error) {
	owner := folder.ProcessOwner()
	if spec.Owner != nil {
		owner = *spec.Owner
	}
	f.serial++
	r := &root{farm: f, dir: filepath.Join(f.dir, strconv.Itoa(f.serial))}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return nil, err
	}
	r.Layer = f.NewLayer(LayerOptions{
		Folder: filepath.Join(r.dir, "lower"), Digest: spec.Digest, Source: spec.Source, Owner: owner,
	})
	directory := func(d digest.Digest) (*tree.Directory, error) { return spec.Source.Directory(ctx, d) }
	r.bare = NewBare(r.Layer, directory)
	err := r.Show(ctx)
	if err == nil && !f.bare {
		r.over = overlay.New(overlay.Options{
			Point: filepath.Join(r.dir, "root"), Writable: r.dir, Owner: owner, Log: zap.NewNop(),
		})
		r.over.For(overlay.Inputs{Root: spec.Digest, Directory: directory}, zap.NewNop())
		err = r.over.Show(overlay.Stack{Folders: r.Folders()})
	}
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	return r, nil
}

// openRoot makes a root, which the test closes. It is skipped, or fails if CI is set, where
// there is no overlay.
func openRoot(t testing.TB, f *linkFarm, spec rootSpec) *root {
	t.Helper()
	r, err := f.newRoot(t.Context(), spec)
	vfstest.Shown(t, err)
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *root) path() string {
	if r.over == nil {
		return r.bare.Path()
	}
	return r.over.Path()
}

func (r *root) unchanged(path string) (tree.Entry, bool) {
	if r.over != nil {
		return unchanged(r.over.Top, path)
	}
	return unchanged(r.bare.Top, path)
}

// unchanged goes to path from the top of a layer.
func unchanged[P interface {
	Enter(name string) (P, error)
	Unchanged(name string) (tree.Entry, string, bool)
	Close()
}](top func() (P, error), path string) (tree.Entry, bool) {
	p, err := top()
	for {
		name, rest, deeper := strings.Cut(path, "/")
		if err != nil {
			return tree.Entry{}, false
		}
		defer p.Close()
		if !deeper {
			in, _, ok := p.Unchanged(name)
			return in, ok
		}
		p, err = p.Enter(name)
		path = rest
	}
}

func (r *root) vouch(ctx context.Context) error {
	return r.Vouch(ctx, time.Now().Add(-max(r.farm.vouched, 0)))
}

func (r *root) close() error {
	if r.dir == "" {
		return nil
	}
	var err error
	if r.over != nil {
		err = r.over.Hide()
	}
	err = errors.Join(err, r.Hide(), r.farm.trash.Put(r.dir))
	r.dir = ""
	return err
}

func mustRead(t *testing.T, p string) []byte {
	t.Helper()
	b, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rot flips a bit of a file, and nothing that stat(2) shows but the change time.
func rot(t *testing.T, path string) {
	t.Helper()
	b := mustRead(t, path)
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if err := errors.Join(os.WriteFile(path, b, 0), os.Chtimes(path, st.ModTime(), st.ModTime())); err != nil {
		t.Fatal(err)
	}
}
