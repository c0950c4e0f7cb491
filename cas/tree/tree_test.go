package tree

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestParseAccepts(t *testing.T) {
	for _, list := range []string{
		"",
		"f:a",
		"f:a f:b d:c d:d l:e=x l:f=/absolute/target l:g=../../up",
		"f:... f:.hidden f:a..b d:-dash l:ünïcode=ä",
		"f:A f:B f:a", // by bytes, not by alphabet
		"f:a f:c d:b d:d l:aa=x l:cc=x",
		"f:" + strings.Repeat("n", 255),
		"l:long=" + strings.Repeat("t", 4095),
	} {
		d, err := Parse(digest.SHA256, marshal(t, words(strings.Fields(list)...)))
		if err != nil || d.Len() != len(strings.Fields(list)) {
			t.Errorf("%.60s: %v", list, err)
		}
	}
}

func TestParseRejectsNames(t *testing.T) {
	long := strings.Repeat("n", 256)
	for _, name := range []string{"", ".", "..", "/", "a/b", "/a", "a/", "../a", "a\x00", "\x00", long} {
		for _, kind := range []string{"f:", "d:", "l:"} {
			m := words(kind + "name=target")
			for _, f := range m.Files {
				f.Name = name
			}
			for _, d := range m.Directories {
				d.Name = name
			}
			for _, l := range m.Symlinks {
				l.Name = name
			}
			d, err := Parse(digest.SHA256, marshal(t, m))
			if d != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), fmt.Sprintf("%.100q", name)) {
				t.Errorf("%s%q: error %v", kind, name, err)
			}
		}
		if err := CheckName(name); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%.100q", name)) {
			t.Errorf("CheckName(%q): %v", name, err)
		}
	}
	if err := CheckName("...\xff"); err != nil {
		t.Error(err)
	}
}

func TestParseRejects(t *testing.T) {
	bad := func(change func(m *repb.Directory)) *repb.Directory {
		m := words("f:file", "d:folder", "l:link=target")
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		m    *repb.Directory
		want string
	}{
		"two files":             {words("f:a", "f:b", "f:b"), `file "b" occurs more than once`},
		"two directories":       {words("d:b", "d:b"), `directory "b" occurs more than once`},
		"two symlinks":          {words("l:b=x", "l:b=y"), `symlink "b" occurs more than once`},
		"file and directory":    {words("f:a", "f:c", "d:b", "d:c"), `"c" occurs more than once: as a directory and as a file`},
		"file and symlink":      {words("f:z", "l:a=x", "l:z=x"), `"z" occurs more than once: as a file and as a symlink`},
		"directory and symlink": {words("f:a", "d:b", "l:b=x"), `"b" occurs more than once: as a directory and as a symlink`},
		"unsorted files":        {words("f:b", "f:a"), `file "a" comes after "b"`},
		"unsorted directories":  {words("d:a", "d:c", "d:b"), `directory "b" comes after "c"`},
		"unsorted symlinks":     {words("l:b=x", "l:B=x"), `symlink "B" comes after "b"`},
		"no target":             {words("l:b="), `symlink "b" has no target`},
		"NUL in a target":       {words("l:b=x\x00y"), `symlink "b" has a NUL in its target "x\x00y"`},
		"long target":           {words("l:b=" + strings.Repeat("t", 4096)), `symlink "b": its target has 4096 bytes`},
		"file without digest":   {bad(func(m *repb.Directory) { m.Files[0].Digest = nil }), `file "file": invalid digest: digest is not set`},
		"folder without digest": {bad(func(m *repb.Directory) { m.Directories[0].Digest = nil }), `directory "folder": invalid digest`},
		"hash too short":        {bad(func(m *repb.Directory) { m.Files[0].Digest = &repb.Digest{Hash: "ab"} }), `file "file"`},
		"negative size": {bad(func(m *repb.Directory) {
			m.Directories[0].Digest = &repb.Digest{Hash: digest.SHA256.Empty().Hash(), SizeBytes: -1}
		}), `directory "folder"`},
		"an escape in the name":  {words("f:a\n\x1b[2J", "f:a"), `"a\n\x1b[2J"`},
		"an empty name first":    {words("f:", "f:x"), `file ""`},
		"a node that is not set": {&repb.Directory{Files: []*repb.FileNode{{}}}, `file ""`},
	} {
		d, err := Parse(digest.SHA256, marshal(t, c.m))
		if d != nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %s", name, err, c.want)
		}
	}
}

func TestParseRejectsWhatIsNoMessage(t *testing.T) {
	good := marshal(t, words("f:file", "l:link=target"))
	for name, b := range map[string][]byte{
		"text":              []byte("this is no message"),
		"cut off":           good[:len(good)-1],
		"field 0":           {0x00, 0x00},
		"end of no group":   {0x0c},
		"group without end": {0x0b},
		"reserved type":     {0x0f},
		"large number":      protowire.AppendVarint(nil, 1<<34),
		"bad properties":    {directoryProperties<<3 | 2, 1, 0xff},
		"bad node":          {directoryFiles<<3 | 2, 1, 0xff},
		"bad digest":        {directoryFiles<<3 | 2, 3, nodeDigest<<3 | 2, 1, 0xff},
	} {
		if d, err := Parse(digest.SHA256, b); d != nil || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		if err := proto.Unmarshal(b, new(repb.Directory)); err == nil {
			t.Errorf("%s: is a message", name)
		}
	}
}

func TestFindsWhatItLists(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 300, 100_000} {
		b := marshal(t, largeDirectory(n))
		d, err := Parse(digest.SHA256, b)
		if err != nil || d.Len() != n {
			t.Fatalf("%d entries, %v", d.Len(), err)
		}
		last := ""
		for i := range n {
			e := d.At(i)
			found, ok := d.Find(e.Name)
			if !ok || found != e || e.Name <= last || e.Kind != d.Kind(i) {
				t.Fatalf("%s: listed %+v after %s, found %+v, %t", e.Name, e, last, found, ok)
			}
			last = e.Name
		}
		for _, name := range []string{"", "e", "entry-", "entry-00000000x", "zz", "\xff"} {
			if e, ok := d.Find(name); ok {
				t.Errorf("%q: found %+v", name, e)
			}
		}
		if most := len(b) + 8*n + 1024; d.Bytes() < len(b)+4*n || d.Bytes() > most && cap(b) == len(b) {
			t.Errorf("%d entries of %d bytes: %d bytes, want at most %d", n, len(b), d.Bytes(), most)
		}
	}
}

func TestNamesInAnyEncoding(t *testing.T) {
	var b []byte
	var names []string
	hash := digest.SHA256.Empty().Hash()
	for i := range 128 { // from the byte 0x80 on, in order
		name := strings.Repeat(string([]byte{0x80 + byte(i)}), 255)
		names = append(names, name)
		inner := protowire.AppendTag(nil, 1, protowire.BytesType)
		inner = protowire.AppendString(inner, hash)
		node := protowire.AppendTag(nil, nodeName, protowire.BytesType)
		node = protowire.AppendString(node, name)
		node = protowire.AppendTag(node, nodeDigest, protowire.BytesType)
		node = protowire.AppendBytes(node, inner)
		b = protowire.AppendTag(b, directoryFiles, protowire.BytesType)
		b = protowire.AppendBytes(b, node)
	}
	if err := proto.Unmarshal(b, new(repb.Directory)); err == nil {
		t.Error("protobuf takes the names as well")
	}
	d, err := Parse(digest.SHA256, b)
	if err != nil || d.Len() != len(names) {
		t.Fatal(err)
	}
	for i, name := range names {
		if e, ok := d.Find(name); !ok || e.Name != name || d.At(i) != e || e.Digest != digest.SHA256.Empty() {
			t.Errorf("%q: %t, %+v", name[:1], ok, e)
		}
	}
}

func TestReferences(t *testing.T) {
	m := words("f:b", "f:a", "d:..", "l:link=", "d:..") // against all rules but one
	refs, err := ReferencesOf(digest.SHA256, marshal(t, m))
	if err != nil || len(refs.Files) != 2 || len(refs.Directories) != 2 || refs.Files[1] != digest.SHA256.Empty() {
		t.Errorf("%+v, %v", refs, err)
	}
	m.Files[0].Digest = nil
	for name, b := range map[string][]byte{"no digest": marshal(t, m), "no message": {0xff}, "bad node": {0x0a, 1, 0xff}} {
		if _, err := ReferencesOf(digest.SHA256, b); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSplitTree(t *testing.T) {
	tree := &repb.Tree{Root: words("f:root"), Children: []*repb.Directory{words("f:one"), {}, words("d:two")}}
	got, err := SplitTree(marshal(t, tree))
	if err != nil || len(got) != 4 {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	for i, want := range append([]*repb.Directory{tree.Root}, tree.Children...) {
		if string(got[i]) != string(marshal(t, want)) {
			t.Errorf("message %d: %q", i, got[i])
		}
	}
	if _, err := SplitTree([]byte{0x0a, 9}); !errors.Is(err, ErrInvalid) {
		t.Errorf("cut off: %v", err)
	}
}

func TestLooksDoNotAllocate(t *testing.T) {
	d, err := Parse(digest.SHA256, marshal(t, largeDirectory(1000)))
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		d.At(500)
		d.Find("entry-00000700")
		d.Find("absent")
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
}
