package server

import (
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// TestResultsThatNobodyCanUse has a client write results that no client could turn into files, or
// that two clients would turn into different files. They must be refused, and must not be hits.
func TestResultsThatNobodyCanUse(t *testing.T) {
	f := netStart(t, netConfig{server: Options{AllowActionUpdates: true}})
	there := f.put(t, digest.SHA256, []byte("there")).Proto()
	empty := digest.SHA256.Empty().Proto()
	file := func(names ...string) *repb.Directory {
		m := &repb.Directory{}
		for _, name := range names {
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: there})
		}
		return m
	}
	folder := func(m proto.Message) *repb.Directory {
		return &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "sub", Digest: f.putMessage(t, m).Proto()}}}
	}
	tree := func(root *repb.Directory, children ...*repb.Directory) *repb.OutputDirectory {
		return &repb.OutputDirectory{Path: "d", TreeDigest: f.putMessage(t, &repb.Tree{Root: root, Children: children}).Proto()}
	}
	encoded := func(b string) *repb.OutputDirectory {
		return &repb.OutputDirectory{Path: "d", TreeDigest: f.put(t, digest.SHA256, []byte(b)).Proto()}
	}
	rootOnly := func(m *repb.Directory) *repb.OutputDirectory {
		return &repb.OutputDirectory{Path: "d", RootDirectoryDigest: f.putMessage(t, m).Proto()}
	}
	both := func(a, b *repb.Directory) *repb.OutputDirectory {
		d := tree(a)
		d.RootDirectoryDigest = f.putMessage(t, b).Proto()
		return d
	}
	latin := strings.Replace(treeOf(t, file("caf\x01")), "caf\x01", "caf\xe9", 1)
	for what, c := range map[string]struct {
		d  *repb.OutputDirectory
		ok bool
	}{
		"no folder":             {tree(nil), true},
		"file":                  {tree(file("a", "b")), true},
		"folder":                {tree(folder(file("a")), file("a")), true},
		"folder twice":          {tree(folder(file("a")), file("a"), file("a")), true},
		"empty folder":          {tree(folder(&repb.Directory{})), true},
		"unused folder":         {tree(file("a"), file("b")), true},
		"root":                  {rootOnly(folder(file("a"))), true},
		"tree and root":         {both(file("a"), file("a")), true},
		"tree and other root":   {both(file("a"), file("b")), false},
		"folder not in it":      {tree(folder(file("a"))), false},
		"other folder in it":    {tree(folder(file("a")), file("b")), false},
		"inner not in it":       {tree(folder(folder(file("a"))), folder(file("a"))), false},
		"unsorted":              {tree(file("b", "a")), false},
		"unsorted inner":        {tree(folder(file("b", "a")), file("b", "a")), false},
		"unsorted unused":       {tree(nil, file("b", "a")), false},
		"twice":                 {tree(file("a", "a")), false},
		"parent":                {tree(file("..")), false},
		"path":                  {tree(file("../a")), false},
		"NUL":                   {tree(file("a\x00")), false},
		"no name":               {tree(file("")), false},
		"link to nothing":       {tree(&repb.Directory{Symlinks: []*repb.SymlinkNode{{Name: "a"}}}), false},
		"file and link":         {tree(&repb.Directory{Files: file("a").Files, Symlinks: []*repb.SymlinkNode{{Name: "a", Target: "b"}}}), false},
		"not UTF-8":             {encoded(latin), false},
		"two roots in order":    {encoded(treeOf(t, file("a")) + treeOf(t, file("b"))), true},
		"two roots, unsorted":   {encoded(treeOf(t, file("b")) + treeOf(t, file("a"))), false},
		"root unsorted":         {rootOnly(file("b", "a")), false},
		"root with inner error": {rootOnly(folder(file(".."))), false},
	} {
		want := codes.InvalidArgument
		if c.ok {
			want = codes.OK
		}
		f.checkUsable(t, what, &repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{c.d}}, want)
	}
	out := func(path string, d *repb.Digest) *repb.OutputFile { return &repb.OutputFile{Path: path, Digest: d} }
	link := func(path, target string) *repb.OutputSymlink { return &repb.OutputSymlink{Path: path, Target: target} }
	program := func(path string) *repb.OutputFile {
		return &repb.OutputFile{Path: path, Digest: there, IsExecutable: true}
	}
	inline := func(path, text string) *repb.OutputFile { return &repb.OutputFile{Path: path, Contents: []byte(text)} }
	at := func(path string, d *repb.OutputDirectory) *repb.OutputDirectory {
		d.Path = path
		return d
	}
	for what, c := range map[string]struct {
		files   []*repb.OutputFile
		folders []*repb.OutputDirectory
		links   []*repb.OutputSymlink
		older   []*repb.OutputSymlink
		want    codes.Code
	}{
		"as the command has it":   {files: []*repb.OutputFile{out("./a", there), out("b//c/", there), out("a", there)}},
		"names that begin alike":  {files: []*repb.OutputFile{out("a", there), out("a.b", there), out("ab/c", there)}},
		"links repeat":            {links: []*repb.OutputSymlink{link("a", "b")}, older: []*repb.OutputSymlink{link("a", "b")}},
		"below a link":            {files: []*repb.OutputFile{out("a/b", there)}, links: []*repb.OutputSymlink{link("a", "c")}},
		"links differ":            {links: []*repb.OutputSymlink{link("a", "b")}, older: []*repb.OutputSymlink{link("a", "c")}, want: codes.InvalidArgument},
		"two files in one place":  {files: []*repb.OutputFile{out("a", there), out("./a", empty)}, want: codes.InvalidArgument},
		"programs":                {files: []*repb.OutputFile{program("a"), program("./a")}},
		"file and program":        {files: []*repb.OutputFile{out("a", there), program("./a")}, want: codes.InvalidArgument},
		"inline":                  {files: []*repb.OutputFile{inline("a", "there"), inline("./a", "there"), out(".//a", there)}},
		"inline differ":           {files: []*repb.OutputFile{inline("a", "b"), inline("./a", "c")}, want: codes.InvalidArgument},
		"where it is run":         {folders: []*repb.OutputDirectory{at("", tree(file("a"))), at(".", tree(file("a")))}},
		"where it is run twice":   {folders: []*repb.OutputDirectory{at("", tree(nil)), at("", tree(nil))}, want: codes.InvalidArgument},
		"where it is run differs": {folders: []*repb.OutputDirectory{at("", tree(file("a"))), at(".", tree(file("b")))}, want: codes.InvalidArgument},
		"file and link":           {files: []*repb.OutputFile{out("a", there)}, links: []*repb.OutputSymlink{link("a", "b")}, want: codes.InvalidArgument},
		"below a file":            {files: []*repb.OutputFile{out("a", there), out("a.b", there), out("a/b/c", there)}, want: codes.InvalidArgument},
		"file is where it is run": {files: []*repb.OutputFile{out(".", there)}, want: codes.InvalidArgument},
	} {
		//lint:ignore SA1019 clients of API 2.0 send it
		r := &repb.ActionResult{OutputFiles: c.files, OutputDirectories: c.folders, OutputSymlinks: c.links, OutputFileSymlinks: c.older}
		f.checkUsable(t, what, r, c.want)
	}
}

// treeOf returns an encoded Tree.
func treeOf(t *testing.T, root *repb.Directory) string {
	t.Helper()
	_, b, err := digest.OfMessage(digest.SHA256, &repb.Tree{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkUsable has a result written of an action of its own, and looked up.
func (f *netFarm) checkUsable(t *testing.T, what string, r *repb.ActionResult, want codes.Code) {
	t.Helper()
	action := f.putAction(t, what)
	_, err := f.update(t, "", action, r)
	netCode(t, what, err, want)
	_, err = f.actions.GetActionResult(t.Context(), &repb.GetActionResultRequest{ActionDigest: action.Proto()})
	if want != codes.OK {
		want = codes.NotFound
	}
	netCode(t, what+" looked up", err, want)
}

// TestResultsFromElsewhere is about results that another storage vouches for.
func TestResultsFromElsewhere(t *testing.T) {
	text := digest.Of(digest.SHA256, []byte("text")).Proto()
	short := &repb.Digest{Hash: text.GetHash(), SizeBytes: 3}
	bad := &repb.Digest{Hash: text.GetHash(), SizeBytes: -1}
	file := func(f *repb.OutputFile) *repb.ActionResult {
		return &repb.ActionResult{OutputFiles: []*repb.OutputFile{f}}
	}
	for what, c := range map[string]struct {
		r  *repb.ActionResult
		ok bool
	}{
		"nothing":           {&repb.ActionResult{}, true},
		"inline":            {&repb.ActionResult{StdoutRaw: []byte("text"), StdoutDigest: text, StderrRaw: []byte("text")}, true},
		"file":              {file(&repb.OutputFile{Path: "../a", Digest: text, Contents: []byte("text")}), true},
		"other stdout":      {&repb.ActionResult{StdoutRaw: []byte("tent"), StdoutDigest: text}, false},
		"other stderr":      {&repb.ActionResult{StderrRaw: []byte("text"), StderrDigest: short}, false},
		"other file":        {file(&repb.OutputFile{Path: "a", Digest: text, Contents: []byte("tent")}), false},
		"file of no size":   {file(&repb.OutputFile{Path: "a", Digest: bad}), false},
		"file of nothing":   {file(&repb.OutputFile{Path: "a"}), false},
		"stdout of no":      {&repb.ActionResult{StdoutDigest: bad}, false},
		"folder of no hash": {&repb.ActionResult{OutputDirectories: []*repb.OutputDirectory{{TreeDigest: &repb.Digest{Hash: "x"}}}}, false},
	} {
		if err := CheckResult(digest.SHA256, c.r); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}
