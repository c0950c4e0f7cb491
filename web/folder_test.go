package web

import (
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// followed returns the target of the link whose text is, or begins with, text.
func followed(t *testing.T, page, text string) string {
	t.Helper()
	before, _, found := strings.Cut(page, ">"+text)
	at := strings.LastIndex(before, `href="`)
	if !found || at < 0 {
		t.Fatalf("no link is called %q:\n%s", text, page)
	}
	path, _, _ := strings.Cut(before[at+len(`href="`):], `"`)
	return strings.ReplaceAll(path, "&amp;", "&")
}

// TestFolders follows links from an action through its input folders to a file, and from an
// operation through an output folder.
func TestFolders(t *testing.T) {
	b := newBrowser(t, false)
	content := digest.Of(digest.SHA256, []byte("hello"))
	b.blobs[content] = []byte("hello")
	file := &repb.FileNode{Name: "<a>.txt", Digest: content.Proto(), IsExecutable: true}
	lib := &repb.Directory{Files: []*repb.FileNode{file}, Symlinks: []*repb.SymlinkNode{{Name: "to", Target: "../else"}}}
	root := &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "lib", Digest: b.blobs.put(lib).Proto()}, {Name: "empty", Digest: b.blobs.put(&repb.Directory{}).Proto()}}}
	command := b.blobs.put(&repb.Command{Arguments: []string{"cc"}})
	action := b.blobs.put(&repb.Action{CommandDigest: command.Proto(), InputRootDigest: b.blobs.put(root).Proto()})

	page := b.get(followed(t, b.get("/actions/sha256/"+action.String(), 200), "folders, and files"), 200)
	expect(t, page, "2 entries")
	expect(t, b.get(followed(t, page, "empty/"), 200), "0 entries", "Nothing is in this folder")
	page = b.get(followed(t, page, "lib/"), 200)
	expect(t, page, "2 entries", "program", "link to ../else", "5 B")
	if got := b.get(followed(t, page, "&lt;a&gt;.txt"), 200); got != "hello" {
		t.Errorf("the file has %q", got)
	}

	tree := b.blobs.put(&repb.Tree{Root: root, Children: []*repb.Directory{lib, {}}})
	for d := range b.blobs { // the folders of an output are only in its Tree
		if d != tree && d != content {
			delete(b.blobs, d)
		}
	}
	b.scheduler.ended = []*historypb.Record{{
		Operation: "operations/1", Action: action.String(), DigestFunction: "sha256", Ended: timestamppb.New(time.Now()),
		Outputs: []*historypb.Output{{Path: "out/dir", Digest: tree.String(), Kind: historypb.Output_FOLDER}}, AllOutputs: 1,
	}}
	page = b.get(followed(t, b.get("/operations/1", 200), "out/dir/"), 200)
	expect(t, page, "out/<wbr>dir")
	page = b.get(followed(t, page, "lib/"), 200)
	expect(t, page, "link to ../else")
	if got := b.get(followed(t, page, "&lt;a&gt;.txt"), 200); got != "hello" {
		t.Errorf("the file has %q", got)
	}
	expect(t, b.get("/folders/sha256/"+content.String()+"?tree="+tree.String(), 404), "the storage does not have the folder")
	expect(t, b.get("/folders/sha256/"+action.String(), 404), "the storage does not have the folder")
	b.get("/folders/sha256/abc/1", 400)
	b.get("/folders/sha256/"+content.String()+"?tree=nonsense", 404)
}
