package web

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/web/stored"
)

const (
	// maxTree bounds what the Tree of an output takes in memory, where there is memory for it. One
	// is read at a time.
	maxTree = 32 << 20
	// maxEntries bounds what is listed of a folder.
	maxEntries = 10_000
	// wholeTree says that the digest of a page is of a Tree, whose root is shown.
	wholeTree = "root"
)

// A folderView is a folder of an input root or of an output.
type folderView struct {
	// Title is its path, as the page before it says.
	Title   string
	Entries []folderEntry
	All     int // of which Entries are the first
}

// A folderEntry is what a folder has.
type folderEntry struct {
	Name string
	// Folder is where the page of a folder is, File where a file can be had, Target where a link
	// leads to; the others are empty.
	Folder, File, Target string
	Bytes                int64
	Executable           bool
}

// folderPath is where a folder can be looked at. Of an output, tree is the digest of its Tree, or
// wholeTree if the folder's is that.
func folderPath(function, hashAndSize, instance, title, tree string) string {
	query := url.Values{"instance": {instance}, "name": {title}}
	if tree != "" {
		query.Set("tree", tree)
	}
	return fmt.Sprintf("/folders/%s/%s?%s", function, hashAndSize, query.Encode())
}

// A folderPages shows folders.
type folderPages struct {
	blobs func(instance string, fn digest.Function) stored.Blobs
	trees *intake.Turns // of Trees that are read
	most  int64         // bytes of memory that a Tree may take
}

func (p *folderPages) one(ctx context.Context, r *http.Request) (any, error) {
	d, err := digestOf(r)
	if err != nil {
		return nil, err
	}
	instance, tree := r.FormValue("instance"), r.FormValue("tree")
	if !auth.Allowed(ctx, auth.Read, instance) {
		return nil, missing("folder", digest.ErrNotFound)
	}
	blobs := p.blobs(instance, d.Function())
	folder := &repb.Directory{}
	if tree == "" {
		_, err = stored.Message(ctx, blobs, d, stored.MaxBytes, folder)
	} else {
		folder, tree, err = p.inTree(ctx, blobs, d, tree)
	}
	if err != nil {
		return nil, missing("folder", err)
	}
	v := &folderView{Title: cmp.Or(r.FormValue("name"), "/")}
	v.add(folder, d.Function(), instance, tree)
	return v, nil
}

// inTree returns a folder of an output, and the digest of its Tree.
func (p *folderPages) inTree(ctx context.Context, blobs stored.Blobs, d digest.Digest, tree string) (*repb.Directory, string, error) {
	of := d
	if tree != wholeTree {
		var err error
		if of, err = stored.Digest(d.Function(), tree); err != nil {
			return nil, "", digest.ErrNotFound
		}
	}
	leave, err := p.trees.Take(ctx, auth.CallerOf(ctx))
	if err != nil {
		return nil, "", err
	}
	defer leave()
	m := &repb.Tree{}
	if _, err := stored.Message(ctx, blobs, of, p.most, m); err != nil {
		return nil, "", err
	}
	if of == d {
		return m.GetRoot(), of.String(), nil
	}
	for _, child := range m.GetChildren() {
		if is, _, err := digest.OfMessage(d.Function(), child); err == nil && is == d {
			return child, of.String(), nil
		}
	}
	return nil, "", digest.ErrNotFound
}

// add lists a folder: its folders, files and links, each by their names.
func (v *folderView) add(folder *repb.Directory, fn digest.Function, instance, tree string) {
	below := func(name string) string {
		if v.Title == "/" {
			return name
		}
		return v.Title + "/" + name
	}
	v.All = len(folder.GetDirectories()) + len(folder.GetFiles()) + len(folder.GetSymlinks())
	for _, e := range first(folder.GetDirectories(), maxEntries) {
		entry := folderEntry{Name: e.GetName()}
		if d, err := digest.FromProto(fn, e.GetDigest()); err == nil {
			entry.Folder = folderPath(fn.String(), d.String(), instance, below(e.GetName()), tree)
		}
		v.Entries = append(v.Entries, entry)
	}
	for _, f := range first(folder.GetFiles(), maxEntries-len(v.Entries)) {
		entry := folderEntry{Name: f.GetName(), Bytes: f.GetDigest().GetSizeBytes(), Executable: f.GetIsExecutable()}
		if d, err := digest.FromProto(fn, f.GetDigest()); err == nil {
			entry.File = blobPath(fn.String(), d.String(), instance, f.GetName())
		}
		v.Entries = append(v.Entries, entry)
	}
	for _, l := range first(folder.GetSymlinks(), maxEntries-len(v.Entries)) {
		v.Entries = append(v.Entries, folderEntry{Name: l.GetName(), Target: l.GetTarget()})
	}
}

// first returns at most n of some.
func first[T any](some []T, n int) []T { return some[:min(n, len(some))] }

// More is how many entries are not listed.
func (v *folderView) More() int { return v.All - len(v.Entries) }
