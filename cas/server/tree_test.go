package server

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// netDirectory makes a Directory that has a name of its own and children.
func netDirectory(name string, children ...digest.Digest) *repb.Directory {
	m := &repb.Directory{Files: []*repb.FileNode{{Name: name, Digest: digest.SHA256.Empty().Proto()}}}
	for i, d := range children {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprintf("d%07d", i), Digest: d.Proto()})
	}
	return m
}

// tree returns the pages of one GetTree call.
func (f *netFarm) tree(t *testing.T, r *repb.GetTreeRequest) ([]*repb.GetTreeResponse, error) {
	t.Helper()
	s, err := f.cas.GetTree(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var pages []*repb.GetTreeResponse
	for {
		p, err := s.Recv()
		if err == io.EOF {
			return pages, nil
		}
		if err != nil {
			return pages, err
		}
		pages = append(pages, p)
	}
}

func netNames(pages []*repb.GetTreeResponse) string {
	var names string
	for _, p := range pages {
		for _, d := range p.GetDirectories() {
			names += d.GetFiles()[0].GetName() + " "
		}
	}
	return names
}

func TestServerGetTree(t *testing.T) {
	f := netStart(t, netConfig{server: Options{MaxBatchBytes: 1000}})
	x := f.putMessage(t, netDirectory("x"))
	gone := digest.Of(digest.SHA256, []byte("gone"))
	b := f.putMessage(t, netDirectory("b", x, x))
	c := f.putMessage(t, netDirectory("c", x, gone, b))
	root := f.putMessage(t, netDirectory("root", b, c))

	whole, err := f.tree(t, &repb.GetTreeRequest{RootDigest: root.Proto()})
	if err != nil || netNames(whole) != "root b c x " || whole[len(whole)-1].GetNextPageToken() != "" {
		t.Fatalf("%s, %v, %v", netNames(whole), whole, err)
	}
	pages, err := f.tree(t, &repb.GetTreeRequest{RootDigest: root.Proto(), PageSize: 1})
	if err != nil || len(pages) != 4 || netNames(pages) != "root b c x " {
		t.Fatalf("%d pages: %s, %v", len(pages), netNames(pages), err)
	}
	for i, p := range pages[:3] {
		rest, err := f.tree(t, &repb.GetTreeRequest{RootDigest: root.Proto(), PageToken: p.GetNextPageToken()})
		if err != nil || netNames(rest) != netNames(pages[i+1:]) {
			t.Errorf("after page %d: %s, %v", i, netNames(rest), err)
		}
	}
	for _, token := range []string{"x", "0", "-1", "01", "99", "+1"} {
		_, err := f.tree(t, &repb.GetTreeRequest{RootDigest: root.Proto(), PageToken: token})
		netCode(t, "token "+token, err, codes.InvalidArgument)
	}
	_, err = f.tree(t, &repb.GetTreeRequest{RootDigest: root.Proto(), PageSize: -1})
	netCode(t, "negative page size", err, codes.InvalidArgument)
	_, err = f.tree(t, &repb.GetTreeRequest{RootDigest: gone.Proto()})
	netCode(t, "missing root", err, codes.NotFound)
	_, err = f.tree(t, &repb.GetTreeRequest{RootDigest: f.put(t, digest.SHA256, []byte("\xff\xff")).Proto()})
	netCode(t, "no directory", err, codes.InvalidArgument)
	lies := f.putMessage(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "d", Digest: &repb.Digest{Hash: "../x"}}}})
	_, err = f.tree(t, &repb.GetTreeRequest{RootDigest: lies.Proto()})
	netCode(t, "bad digest inside", err, codes.InvalidArgument)

	empty, err := f.tree(t, &repb.GetTreeRequest{RootDigest: digest.SHA256.Empty().Proto()})
	if err != nil || len(empty) != 1 || len(empty[0].GetDirectories()) != 1 || proto.Size(empty[0].GetDirectories()[0]) != 0 {
		t.Errorf("empty root: %v, %v", empty, err)
	}
}

func TestServerGetTreeNamesADirectoryOnce(t *testing.T) {
	f := netStart(t, netConfig{})
	// 2^40 paths lead to the last directory, and the root names one 20,000 times.
	d := f.putMessage(t, netDirectory("0"))
	for i := range 40 {
		d = f.putMessage(t, netDirectory(fmt.Sprint(i+1), d, d))
	}
	many := make([]digest.Digest, 20_000)
	for i := range many {
		many[i] = d
	}
	root := f.putMessage(t, netDirectory("root", many...))
	s, err := client.New(f.conn, client.Options{}).GetTree(t.Context(), root)
	if err != nil || len(s) != 42 {
		t.Errorf("%d directories, %v", len(s), err)
	}
}

// netRaw encodes a message whose name "?" stands for one that is not UTF-8.
func netRaw(t *testing.T, m proto.Message) []byte {
	t.Helper()
	_, b, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(b, []byte("?"), []byte("\xe9"), 1)
}

// TestServerTakesNamesInAnyEncoding has such a name as far as protobuf lets it be
// had: a GetTree that would have to send it says so, and no other call minds.
func TestServerTakesNamesInAnyEncoding(t *testing.T) {
	f := netStart(t, netConfig{server: Options{AllowActionUpdates: true}})
	inside := f.put(t, digest.SHA256, netRaw(t, netDirectory("?")))
	root := f.putMessage(t, netDirectory("root", inside))
	pages, err := f.tree(t, &repb.GetTreeRequest{RootDigest: root.Proto()})
	netCode(t, "GetTree", err, codes.InvalidArgument)
	if err == nil || !strings.Contains(err.Error(), inside.Hash()) || len(pages) > 0 {
		t.Errorf("GetTree: %v, %v", pages, err)
	}
	pages, err = f.tree(t, &repb.GetTreeRequest{RootDigest: f.putMessage(t, netDirectory("other")).Proto()})
	if err != nil || netNames(pages) != "other " {
		t.Errorf("the next call: %v, %v", pages, err)
	}

	action := f.putAction(t, "a")
	gone := &repb.FileNode{Name: "?", Digest: digest.Of(digest.SHA256, []byte("gone")).Proto()}
	for name, c := range map[string]struct {
		d    *repb.OutputDirectory
		code codes.Code
	}{
		"directory": {&repb.OutputDirectory{RootDirectoryDigest: root.Proto()}, codes.OK},
		"tree": {&repb.OutputDirectory{TreeDigest: f.put(t, digest.SHA256, netRaw(t, &repb.Tree{
			Root: netDirectory("?"),
		})).Proto()}, codes.OK},
		"tree that is not whole": {&repb.OutputDirectory{TreeDigest: f.put(t, digest.SHA256, netRaw(t, &repb.Tree{
			Children: []*repb.Directory{{Files: []*repb.FileNode{gone}}},
		})).Proto()}, codes.NotFound},
		"no tree": {&repb.OutputDirectory{TreeDigest: f.put(t, digest.SHA256, []byte("\xff")).Proto()}, codes.InvalidArgument},
	} {
		if err := f.server.actions.Put(t.Context(), "", action, &repb.ActionResult{
			OutputDirectories: []*repb.OutputDirectory{c.d},
		}); err != nil {
			t.Fatal(err)
		}
		_, err := f.actions.GetActionResult(t.Context(), &repb.GetActionResultRequest{ActionDigest: action.Proto()})
		netCode(t, name, err, c.code)
	}
}
