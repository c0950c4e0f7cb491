package client

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A folder is a directory of the input root that is being built.
type folder struct {
	folders map[string]*folder
	files   []fileEntry
	links   []*repb.SymlinkNode
}

// A fileEntry is a file in a folder. Its node gets the digest when all files are hashed.
type fileEntry struct {
	*hashedFile
	node *repb.FileNode
}

// child returns the folder called name in f, which it creates if needed.
func (f *folder) child(name string) *folder {
	c := f.folders[name]
	if c == nil {
		c = &folder{}
		if f.folders == nil {
			f.folders = map[string]*folder{}
		}
		f.folders[name] = c
	}
	return c
}

// descend returns the folder at prefix below f, which it creates if needed.
func (f *folder) descend(prefix string) (*folder, error) {
	if prefix == "" {
		return f, nil
	}
	if prefix == "." || !fs.ValidPath(prefix) {
		return nil, errors.New("the prefix is not a clean relative path")
	}
	for name := range strings.SplitSeq(prefix, "/") {
		f = f.child(name)
	}
	return f, nil
}

// An encoder turns folders into Directory messages and collects blobs for the upload.
type encoder struct {
	fn    digest.Function
	blobs []casclient.Blob
	seen  map[digest.Digest]struct{} // blobs in blobs, and the empty blob
}

// encode returns the digest of f as a Directory message, and encodes its subfolders first. at is
// the path of f in the input root, for errors.
func (e *encoder) encode(f *folder, at string) (digest.Digest, error) {
	m := &repb.Directory{Symlinks: f.links}
	for _, file := range f.files {
		file.node.Digest = file.digest.Proto()
		m.Files = append(m.Files, file.node)
	}
	for _, name := range slices.Sorted(maps.Keys(f.folders)) {
		d, err := e.encode(f.folders[name], path.Join(at, name))
		if err != nil {
			return digest.Digest{}, err
		}
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d.Proto()})
	}
	sortNodes(m.Files)
	sortNodes(m.Symlinks)
	d, b, err := digest.OfMessage(e.fn, m)
	if err == nil {
		_, err = tree.Parse(e.fn, b)
	}
	if err != nil {
		return digest.Digest{}, fmt.Errorf("input folder %q: %w", at, err)
	}
	e.add(d, func() casclient.Blob { return casclient.BytesBlob(d, b) })
	return d, nil
}

func (e *encoder) addFiles(files []*hashedFile) {
	for _, f := range files {
		e.add(f.digest, func() casclient.Blob { return casclient.FileBlob(f.digest, f.path) })
	}
}

// add adds a blob unless it has been added before.
func (e *encoder) add(d digest.Digest, blob func() casclient.Blob) {
	if _, twice := e.seen[d]; twice {
		return
	}
	e.seen[d] = struct{}{}
	e.blobs = append(e.blobs, blob())
}

// sortNodes orders nodes by the bytes of their names (REv2, "Directory").
func sortNodes[N interface{ GetName() string }](nodes []N) {
	slices.SortFunc(nodes, func(a, b N) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// requireUTF8 rejects text that a protobuf string cannot hold.
func requireUTF8(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("its %s is not UTF-8", what)
	}
	return nil
}
