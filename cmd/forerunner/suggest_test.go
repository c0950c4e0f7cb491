package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/prefetch"
)

// folderNode makes a folder that was read, unless its name ends with "-".
func folderNode(name string, bytes int64, children ...*prefetch.Node) *prefetch.Node {
	n := &prefetch.Node{Folder: true, Mark: prefetch.ReadLast, Children: children}
	var unread bool
	if n.Name, unread = strings.CutSuffix(name, "-"); unread {
		n.Mark = prefetch.NeverRead
	}
	n.Sums[n.Mark] = prefetch.Amount{Files: 1, Bytes: bytes}
	return n
}

func TestSuggestedFolders(t *testing.T) {
	f := folders{}
	f.add("", folderNode("", 0, folderNode("sdk", 9, folderNode("doc-", 100), folderNode("test-", 7)), folderNode("lib-", 50)))
	f.add("", folderNode("", 0, folderNode("sdk", 9, folderNode("doc-", 120), folderNode("test", 7)), folderNode("lib-", 40)))
	f.add("", folderNode("", 0, folderNode("sdk-", 500), folderNode("empty", 0))) // the content of sdk is unknown
	want := []suggestedFolder{
		{"sdk/doc", 2, reportedAmount{1, 120}},
		{"lib", 2, reportedAmount{1, 50}},
	}
	if got := f.suggested(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	f.add("", folderNode("", 0, folderNode("lib", 1, folderNode("a-", 1))))
	if got := f.suggested(); len(got) != 2 || got[1].Path != "lib/a" {
		t.Errorf("%+v, want lib/a in place of lib, which was read", got)
	}
}

func TestActionsOfText(t *testing.T) {
	one, two := strings.Repeat("a", 64)+"/142", strings.Repeat("0", 64)+"/7"
	log := `{"msg":"operation finished","action":"` + one + `","mnemonic":"GoCompile"}` + "\n" + `{"action":"` + two + `"} ab/12`
	got, err := actionsOf([]string{two, "-"}, strings.NewReader(log))
	if want := []string{two, one, two}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}
