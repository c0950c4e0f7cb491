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
	var u testbed.Upload
	var folders []*repb.DirectoryNode
	command := &repb.Command{Arguments: []string{"/usr/bin/wc", "-l", "own"}}
	for i := range treeFolders {
		var dir repb.Directory
		for j := range treeFiles {
			content := fmt.Sprintf("%-*s", treeBytes, fmt.Sprintf("file %d of folder %d", j, i))
			dir.Files = append(dir.Files, &repb.FileNode{Name: fmt.Sprintf("%03d", j), Digest: u.Bytes([]byte(content)).Proto()})
		}
		d, err := u.Message(&dir)
		if err != nil {
			return nil, err
		}
		folders = append(folders, &repb.DirectoryNode{Name: fmt.Sprintf("%03d", i), Digest: d.Proto()})
		if i%(treeFolders/treeRead) == 0 {
			command.Arguments = append(command.Arguments, fmt.Sprintf("%03d/%03d", i, i))
		}
	}
	cd, err := u.Message(command)
	if err != nil {
		return nil, err
	}
	for i := range n {
		own := &repb.FileNode{Name: "own", Digest: u.Bytes(fmt.Appendf(nil, "%s %d\n", strings.Repeat("own", 100), i)).Proto()}
		root, err := u.Message(&repb.Directory{Files: []*repb.FileNode{own}, Directories: folders})
		if err != nil {
			return nil, err
		}
		action, err := u.Action(cd, root)
		if err != nil {
			return nil, err
		}
		actions = append(actions, action)
	}
	return actions, u.To(ctx, storage)
}
