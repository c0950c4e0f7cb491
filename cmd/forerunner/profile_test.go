package main

import (
	"context"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/records/record"
)

// TestProfiledTree lays a profile over a tree.
func TestProfiledTree(t *testing.T) {
	var all []*repb.Directory
	put := func(m *repb.Directory) *repb.Digest {
		all = append(all, m)
		d, _, err := digest.OfMessage(digest.SHA256, m)
		if err != nil {
			t.Fatal(err)
		}
		return d.Proto()
	}
	file := func(name string, size int) *repb.FileNode {
		return &repb.FileNode{Name: name, Digest: digest.Of(digest.SHA256, []byte(strings.Repeat("x", size))).Proto()}
	}
	deep := put(&repb.Directory{Files: []*repb.FileNode{file("one", 10), file("two", 20)}})
	other := put(&repb.Directory{Files: []*repb.FileNode{file("one", 10), file("two", 20), file("three", 7)}})
	lib := put(&repb.Directory{
		Files:       []*repb.FileNode{file("large", 3<<20), file("used", 100)},
		Directories: []*repb.DirectoryNode{{Name: "deep", Digest: deep}},
	})
	root, err := digest.FromProto(digest.SHA256, put(&repb.Directory{
		Files:       []*repb.FileNode{file("main", 5)},
		Directories: []*repb.DirectoryNode{{Name: "lib", Digest: lib}, {Name: "other", Digest: other}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	// The run before the last one read something else.
	store := &oneRecord{}
	profiles := prefetch.NewProfiles(store, prefetch.ProfilesOptions{})
	action := prefetch.Action{Digest: root}
	for _, read := range [][]string{{"", "main", "other", "other/two"}, {"", "main", "lib", "lib/used"}} {
		var hashes []prefetch.PathHash
		for _, p := range read {
			hashes = append(hashes, prefetch.HashPath(p))
		}
		profiles.Learn(t.Context(), action, hashes, prefetch.Inputs{})
	}
	whole, ok := prefetch.ParseRecord(store.value)
	if !ok {
		t.Fatal("no record")
	}
	filter, _ := prefetch.ParseRecord(filterOnly(t, store.value))
	const sums = "+ 2 of 8 files, 105 B of 3 MiB: read by the last run|" +
		"~ 1 of 8 files, 20 B of 3 MiB: foreseen, too|- 5 of 8 files, 3 MiB of 3 MiB: never read|"
	for _, c := range []struct {
		record prefetch.Record
		unused bool
		want   string
	}{
		{whole, false, "+ 5 B main|- 3 MiB lib/large|+ 100 B lib/used|- 30 B lib/deep/ (2 files)|" +
			"- 10 B other/one|~ 20 B other/two|- 7 B other/three|" + sums},
		{whole, true, "- 3 MiB lib/large|- 30 B lib/deep/ (2 files)|- 10 B other/one|- 7 B other/three|" + sums},
		{filter, false, "~ 5 B main|- 3 MiB lib/large|~ 100 B lib/used|- 30 B lib/deep/ (2 files)|" +
			"- 10 B other/one|~ 20 B other/two|- 7 B other/three|" +
			"the files of the last run are unknown: the store has filters only|" +
			"+ 0 of 8 files, 0 B of 3 MiB: read by the last run|" +
			"~ 3 of 8 files, 125 B of 3 MiB: foreseen, too|- 5 of 8 files, 3 MiB of 3 MiB: never read|"},
	} {
		tree, err := prefetch.LayOver(c.record, root, all, 100)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		lines := profiledLines(nil, "", tree)
		if c.unused {
			lines = unused(lines)
		}
		printProfiled(&b, lines, tree, c.record)
		var got string
		for line := range strings.Lines(b.String()) {
			got += strings.Join(strings.Fields(line), " ") + "|"
		}
		if got != c.want {
			t.Errorf("unused %v:\n%s, want\n%s", c.unused, got, c.want)
		}
	}
	if _, err := parseDigest("abc"); err == nil {
		t.Error("a digest without a size was taken")
	}
}

// filterOnly returns the part of a record that a store without histories keeps.
func filterOnly(t *testing.T, value []byte) []byte {
	t.Helper()
	var m fsac.FileSystemAccessProfile
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, &m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.Marshal(&m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// oneRecord is a record.Hints for one action.
type oneRecord struct{ value []byte }

func (s *oneRecord) Get(context.Context, record.Key) ([]byte, error) {
	if s.value == nil {
		return nil, record.ErrNotFound
	}
	return s.value, nil
}

func (s *oneRecord) Put(_ context.Context, _ record.Key, value []byte) error {
	s.value = value
	return nil
}
