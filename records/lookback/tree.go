package lookback

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

// Source provides the directories of input trees. fetch.ReadThrough is one.
type Source interface {
	// LocalDirectory returns the Directory with that digest if it is local and valid.
	LocalDirectory(d digest.Digest) (*tree.Directory, bool)
	// Directory returns it, and fetches it if needed.
	Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error)
	// Load makes blobs local.
	Load(ctx context.Context, ds []digest.Digest) error
}

// A Tree is the input tree of one action.
type Tree struct {
	Root   digest.Digest
	Source Source
}

// account returns what a run on t found in the directory d when it looked up the paths of p.
func (t Tree) account(ctx context.Context, p *node, d digest.Digest) (*reuse.Directory, error) {
	dir, err := t.Source.Directory(ctx, d)
	if err != nil {
		return nil, err
	}
	m := &reuse.Directory{Hash: d.AppendHash(nil)}
	if p.looks&tree.LookThrough != 0 {
		m.Names = namesOf(dir)
	}
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		below := p.names[name]
		e, there := dir.Find(name)
		looks := below.looks & (tree.LookUp | tree.LookInside)
		entry := &reuse.Entry{Name: []byte(name), Looks: uint32(looks), Shown: shown(e, there, looks)}
		if below.looks&tree.LookThrough != 0 || len(below.names) > 0 {
			if !there || e.Kind != tree.Dir {
				return nil, fmt.Errorf("looked into %.200q, which is not a directory", name)
			}
			if entry.Directory, err = t.account(ctx, below, e.Digest); err != nil {
				return nil, err
			}
		}
		m.Entries = append(m.Entries, entry)
	}
	return m, nil
}

// A comparison is a directory of an earlier run and the present one.
type comparison struct {
	path string
	seen *reuse.Directory
	now  digest.Digest
}

// Differs returns a path at which t differs from an earlier run, whose record is seen; it is false
// if there is none. Missing directories are fetched level by level, each level in one call.
func (t Tree) Differs(ctx context.Context, seen *reuse.Directory) (path string, differs bool, err error) {
	level := []comparison{{"", seen, t.Root}}
	for len(level) > 0 {
		level = slices.DeleteFunc(level, func(c comparison) bool { return c.same() })
		if err := t.load(ctx, level); err != nil {
			return "", false, err
		}
		var next []comparison
		for _, c := range level {
			dir, err := t.Source.Directory(ctx, c.now)
			if err != nil {
				return "", false, err
			}
			if path, differs, err := c.compare(dir, &next); differs || err != nil {
				return path, differs, err
			}
		}
		level = next
	}
	return "", false, nil
}

// load makes the directories of a level local.
func (t Tree) load(ctx context.Context, level []comparison) error {
	var absent []digest.Digest
	for _, c := range level {
		if _, ok := t.Source.LocalDirectory(c.now); !ok {
			absent = append(absent, c.now)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return t.Source.Load(ctx, absent)
}

// same reports that nothing in the directory can differ, at any depth.
func (c comparison) same() bool { return bytes.Equal(c.seen.GetHash(), c.now.AppendHash(nil)) }

// compare repeats the run's lookups in a directory, and adds its children with lookups to next.
func (c comparison) compare(dir *tree.Directory, next *[]comparison) (path string, differs bool, err error) {
	if names := c.seen.GetNames(); len(names) > 0 && !bytes.Equal(names, namesOf(dir)) {
		return c.path + "/", true, nil
	}
	for _, entry := range c.seen.GetEntries() {
		name := string(entry.GetName())
		path := name
		if c.path != "" {
			path = c.path + "/" + name
		}
		e, there := dir.Find(name)
		if !bytes.Equal(entry.GetShown(), shown(e, there, tree.Look(entry.GetLooks()))) {
			return path, true, nil
		}
		if entry.GetDirectory() == nil {
			continue
		}
		if !there || e.Kind != tree.Dir {
			return "", false, fmt.Errorf("%w: %.200q was looked into and was no directory", sharedruns.ErrMalformed, path)
		}
		*next = append(*next, comparison{path, entry.GetDirectory(), e.Digest})
	}
	return "", false, nil
}

// shown returns a hash of what lookups of an entry show, empty if it is missing. It always includes
// the kind. A directory has no other attributes, because those are the same for all.
func shown(e tree.Entry, there bool, l tree.Look) []byte {
	if !there {
		return nil
	}
	b := []byte{byte(e.Kind), byte(l)}
	if l&tree.LookUp != 0 && e.Kind != tree.Dir {
		b = binary.BigEndian.AppendUint32(b, e.Perm)
		b = binary.BigEndian.AppendUint64(b, uint64(e.MTime.Unix()))
		b = binary.BigEndian.AppendUint32(b, uint32(e.MTime.Nanosecond()))
		// One of the two is zero.
		b = binary.BigEndian.AppendUint64(b, uint64(e.Digest.SizeBytes()+int64(len(e.Target))))
	}
	if l&tree.LookInside != 0 {
		if e.Kind == tree.Symlink {
			b = append(b, e.Target...)
		} else {
			b = binary.BigEndian.AppendUint64(e.Digest.AppendHash(b), uint64(e.Digest.SizeBytes()))
		}
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// namesOf returns a hash of a listing of dir.
func namesOf(dir *tree.Directory) []byte {
	h := sha256.New()
	var head [2]byte
	for i := range dir.Len() {
		name := dir.Name(i)
		head = [2]byte{byte(dir.Kind(i)), byte(len(name))} // at most tree.MaxName, which is 255
		_, _ = h.Write(head[:])
		_, _ = h.Write([]byte(name))
	}
	return h.Sum(nil)
}
