package local

import (
	"context"
	"fmt"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/testbed"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// treeFolders is the number of folders of an input root, treeFiles that of files in each, and
	// treeBytes the size of a file.
	treeFolders, treeFiles, treeBytes = 100, 100, 2 << 10
	// treeRead is the number of files that an action reads, each from another folder.
	treeRead = 20
)

// storeTrees uploads n actions that read a few files of a large input root. The roots differ in one
// file beside the folders, as those of real actions do.
func storeTrees(ctx context.Context, storage *casclient.Client, n int) (actions []digest.Digest, err error) {
	var blobs []casclient.Blob
	add := func(content []byte) digest.Digest {
		d := digest.Of(testbed.Function, content)
		blobs = append(blobs, casclient.BytesBlob(d, content))
		return d
	}
	var folders []*repb.DirectoryNode
	var read []string
	for i := range treeFolders {
		var dir repb.Directory
		for j := range treeFiles {
			content := fmt.Sprintf("%-*s", treeBytes, fmt.Sprintf("file %d of folder %d", j, i))
			dir.Files = append(dir.Files, &repb.FileNode{Name: fmt.Sprintf("%03d", j), Digest: add([]byte(content)).Proto()})
		}
		d, raw, err := digest.OfMessage(testbed.Function, &dir)
		if err != nil {
			return nil, err
		}
		blobs = append(blobs, casclient.BytesBlob(d, raw))
		folders = append(folders, &repb.DirectoryNode{Name: fmt.Sprintf("%03d", i), Digest: d.Proto()})
		if i%(treeFolders/treeRead) == 0 {
			read = append(read, fmt.Sprintf("%03d/%03d", i, i))
		}
	}
	command := testbed.NewCommand(append([]string{"/usr/bin/wc", "-l", "own"}, read...), "", "PATH=/usr/bin:/bin")
	command.OutputFiles, command.OutputPaths = nil, nil
	cd, raw, err := digest.OfMessage(testbed.Function, command)
	if err != nil {
		return nil, err
	}
	blobs = append(blobs, casclient.BytesBlob(cd, raw))
	for i := range n {
		own := &repb.FileNode{Name: "own", Digest: add(fmt.Appendf(nil, "%s %d\n", strings.Repeat("own", 100), i)).Proto()}
		rd, raw, err := digest.OfMessage(testbed.Function, &repb.Directory{Files: []*repb.FileNode{own}, Directories: folders})
		if err != nil {
			return nil, err
		}
		ad, rawAction, err := digest.OfMessage(testbed.Function, &repb.Action{
			CommandDigest: cd.Proto(), InputRootDigest: rd.Proto(), DoNotCache: true,
		})
		if err != nil {
			return nil, err
		}
		blobs = append(blobs, casclient.BytesBlob(rd, raw), casclient.BytesBlob(ad, rawAction))
		actions = append(actions, ad)
	}
	return actions, storage.Upload(ctx, blobs, nil)
}
