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
	// maxTree limits the memory of the Tree of an output if memory is plentiful. One Tree is read
	// at a time.
	maxTree = 32 << 20
	// maxEntries limits the entries of a folder on its page.
	maxEntries = 10_000
	// wholeTree means that the digest in the path is the digest of a Tree, whose root is shown.
	wholeTree = "root"
)

// A folderView is a folder of an input root or of an output.
type folderView struct {
	// Title is the path of the folder, as the linking page gives it.
	Title   string
	Entries []folderEntry
	All     int // number of entries, of which Entries are the first
}

// A folderEntry is an entry of a folder.
type folderEntry struct {
	Name string
	// Folder is the page of a subfolder, File the path to download a file, Target the target of a
	// symlink; the others are empty.
	Folder, File, Target string
	Bytes                int64
	Executable           bool
}

// folderPath returns the path of the page of a folder. For a folder of an output, tree is the
// digest of its Tree, or wholeTree if the given digest is the Tree's own.
func folderPath(function, hashAndSize, instance, title, tree string) string {
	query := url.Values{"instance": {instance}, "name": {title}}
	if tree != "" {
		query.Set("tree", tree)
	}
	return fmt.Sprintf("/folders/%s/%s?%s", function, hashAndSize, query.Encode())
}

// A folderPages serves the pages of folders.
type folderPages struct {
	blobs func(instance string, fn digest.Function) stored.Blobs
	trees *intake.Turns // for reading Trees
	most  int64         // limit of the memory of a Tree, in bytes
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

// add lists the content of a folder: its subfolders, files and symlinks, each sorted by name.
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

// first returns the first n elements, or fewer if there are not n.
func first[T any](some []T, n int) []T { return some[:min(n, len(some))] }

// More returns the number of entries that are not listed.
func (v *folderView) More() int { return v.All - len(v.Entries) }
