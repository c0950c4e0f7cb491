package tree_test

import (
	"fmt"
	"log"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A Directory is searched in its encoded message.
func ExampleParse() {
	text := digest.Of(digest.SHA256, []byte("hello\n"))
	encoded, err := proto.Marshal(&repb.Directory{
		Files:    []*repb.FileNode{{Name: "greeting", Digest: text.Proto()}},
		Symlinks: []*repb.SymlinkNode{{Name: "alias", Target: "greeting"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	directory, err := tree.Parse(digest.SHA256, encoded)
	if err != nil {
		log.Fatal(err)
	}
	for i := range directory.Len() {
		fmt.Println(directory.Name(i))
	}
	entry, ok := directory.Find("greeting")
	fmt.Println(ok, entry.Digest == text)
	// Output:
	// alias
	// greeting
	// true true
}
