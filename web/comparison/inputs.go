package comparison

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/web/stored"
)

const (
	inputs = "Inputs"
	// maxFolders limits the folders that are read, folderPairs how many pairs of them are read at
	// once.
	maxFolders, folderPairs = 1000, 8
)

// A reads tells which runs of a command read a path.
type reads func(path string) Read

// reads returns the reads of this action's command, or those of the other action's command if this
// one has no profile.
func (x *explaining) reads(before, now *action) reads {
	if x.Profile == nil {
		return func(string) Read { return "" }
	}
	for _, a := range []*action{now, before} {
		value, err := x.Profile(x.ctx, x.r.GetInstanceName(), digest.OfReduced(a.fn, a.Action))
		if err != nil {
			continue
		}
		if known, ok := prefetch.ParseRecord(value); ok {
			return func(path string) Read {
				switch h := prefetch.HashPath(path); {
				case known.ReadLast(h):
					return ByLast
				case known.Profile != nil && known.Profile.Contains(h):
					return Earlier
				}
				return ByNone
			}
		}
	}
	return func(string) Read { return "" }
}

// A walk compares input roots. It descends only into folders whose digests differ.
type walk struct {
	blobs   stored.Blobs
	fn      digest.Function
	reads   reads
	problem string
}

// A pair is a folder that both input roots have.
type pair struct {
	path        string
	before, now *repb.Digest
}

func (w *walk) compare(ctx context.Context, before, now *repb.Digest) (list []Difference) {
	read := 0
	for level := []pair{{"", before, now}}; len(level) > 0; {
		level = slices.DeleteFunc(level, func(p pair) bool { return digest.Text(p.before) == digest.Text(p.now) })
		if read += 2 * len(level); read > maxFolders || len(list) > 10*maxDifferences {
			w.problem = "There are more inputs that differ."
			break
		}
		var next []pair
		for some := range slices.Chunk(level, folderPairs) {
			if len(list) > 10*maxDifferences {
				break
			}
			for i, c := range w.contents(ctx, some) {
				if x, y := c[0], c[1]; x != nil {
					list = append(list, w.entries(some[i].path, x, y)...)
					next = append(next, both(some[i].path, x, y)...)
				}
			}
		}
		level = next
	}
	slices.SortFunc(list, func(a, b Difference) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// contents reads the folders of pairs concurrently. A pair with an unreadable folder has no
// content.
func (w *walk) contents(ctx context.Context, pairs []pair) [][2]*repb.Directory {
	contents := make([][2]*repb.Directory, len(pairs))
	var lost atomic.Bool
	var group errgroup.Group
	for i, p := range pairs {
		group.Go(func() error {
			x, xErr := w.folder(ctx, p.before)
			y, yErr := w.folder(ctx, p.now)
			if xErr != nil || yErr != nil {
				lost.Store(true)
				return nil
			}
			contents[i] = [2]*repb.Directory{x, y}
			return nil
		})
	}
	_ = group.Wait() // the functions return no error
	if lost.Load() {
		w.problem = "Some folders of inputs that differ cannot be read: the storage no longer has them, they are too large, or it does not answer."
	}
	return contents
}

func (w *walk) folder(ctx context.Context, m *repb.Digest) (*repb.Directory, error) {
	d, err := digest.FromProto(w.fn, m)
	folder := &repb.Directory{}
	if err != nil || d.SizeBytes() == 0 {
		return folder, err
	}
	_, err = stored.Message(ctx, w.blobs, d, stored.MaxBytes, folder)
	return folder, err
}

// entries lists the differences of two folders, except in subfolders that both have.
func (w *walk) entries(at string, before, now *repb.Directory) []Difference {
	x, y := entriesOf(before), entriesOf(now)
	for name := range x {
		if _, both := y[name]; both && strings.HasSuffix(name, "/") {
			delete(x, name)
			delete(y, name)
		}
	}
	list := between(x, y)
	for i, d := range list {
		name := path.Join(at, strings.TrimSuffix(d.Name, "/"))
		if !strings.HasPrefix(d.Other, linkTo) && !strings.HasPrefix(d.This, linkTo) { // profiles have no symlinks
			list[i].Read = w.reads(name)
		}
		if list[i].Name = name; strings.HasSuffix(d.Name, "/") {
			list[i].Name += "/"
		}
	}
	if p, q := propertiesOf(before.GetNodeProperties()), propertiesOf(now.GetNodeProperties()); p != q {
		list = append(list, Difference{Name: at + "/", Other: p, This: q, Read: w.reads(at)})
	}
	return list
}

const linkTo = "link to "

// entriesOf returns the entries of a folder with their content. Names of folders end in a slash.
func entriesOf(m *repb.Directory) map[string]string {
	all := map[string]string{}
	for _, f := range m.GetFiles() {
		what := digest.Text(f.GetDigest())
		if f.GetIsExecutable() {
			what += ", executable"
		}
		all[f.GetName()] = what + propertiesOf(f.GetNodeProperties())
	}
	for _, l := range m.GetSymlinks() {
		all[l.GetName()] = linkTo + l.GetTarget() + propertiesOf(l.GetNodeProperties())
	}
	for _, d := range m.GetDirectories() {
		all[d.GetName()+"/"] = "folder " + digest.Text(d.GetDigest())
	}
	return all
}

func propertiesOf(p *repb.NodeProperties) string {
	var b strings.Builder
	for _, x := range p.GetProperties() {
		b.WriteString(", " + x.GetName() + "=" + x.GetValue())
	}
	if t := p.GetMtime(); t != nil {
		b.WriteString(", mtime " + t.AsTime().UTC().String())
	}
	if m := p.GetUnixMode(); m != nil {
		b.WriteString(", mode " + strconv.FormatUint(uint64(m.GetValue()), 8))
	}
	return b.String()
}

// both returns the subfolders that both have.
func both(at string, before, now *repb.Directory) (list []pair) {
	old := map[string]*repb.Digest{}
	for _, d := range before.GetDirectories() {
		old[d.GetName()] = d.GetDigest()
	}
	for _, d := range now.GetDirectories() {
		if was, ok := old[d.GetName()]; ok {
			list = append(list, pair{path.Join(at, d.GetName()), was, d.GetDigest()})
		}
	}
	return list
}
