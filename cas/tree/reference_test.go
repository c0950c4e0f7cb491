package tree

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// refEntries is the reference for Parse, At and Len: it decodes b with the protobuf library, checks
// the message in the simplest way, and lists its entries.
func refEntries(fn digest.Function, b []byte) ([]Entry, error) {
	m := new(repb.Directory)
	if err := proto.Unmarshal(b, m); err != nil {
		return nil, err
	}
	var entries []Entry
	for _, f := range m.Files {
		e := Entry{Name: f.Name, Kind: File, Executable: f.IsExecutable, Perm: 0o444}
		if f.IsExecutable {
			e.Perm = 0o555
		}
		if mode := f.NodeProperties.GetUnixMode(); mode != nil {
			e.Perm = mode.Value & 0o777
		}
		e.MTime = refTime(f.NodeProperties)
		var err error
		if e.Digest, err = digest.FromProto(fn, f.Digest); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	for _, d := range m.Directories {
		e := Entry{Name: d.Name, Kind: Dir, Perm: 0o755, MTime: refTime(nil)}
		var err error
		if e.Digest, err = digest.FromProto(fn, d.Digest); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	for _, l := range m.Symlinks {
		e := Entry{Name: l.Name, Kind: Symlink, Target: l.Target, Perm: 0o777, MTime: refTime(l.NodeProperties)}
		if e.Target == "" || len(e.Target) > 4095 || strings.Contains(e.Target, "\x00") {
			return nil, fmt.Errorf("target %q", e.Target)
		}
		entries = append(entries, e)
	}
	return refSorted(entries)
}

func refSorted(entries []Entry) ([]Entry, error) {
	lastOf, seen := map[Kind]string{}, map[string]bool{}
	for _, e := range entries {
		if e.Name == "" || e.Name == "." || e.Name == ".." || len(e.Name) > 255 || strings.ContainsAny(e.Name, "/\x00") {
			return nil, fmt.Errorf("name %q", e.Name)
		}
		if seen[e.Name] || e.Name < lastOf[e.Kind] {
			return nil, errors.New("order")
		}
		seen[e.Name], lastOf[e.Kind] = true, e.Name
	}
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

func refTime(p *repb.NodeProperties) time.Time {
	if t := p.GetMtime(); t != nil && t.IsValid() {
		return t.AsTime()
	}
	return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
}

// sameEntry compares times by value, not by zone.
func sameEntry(a, b Entry) bool {
	same := a.MTime.Equal(b.MTime)
	a.MTime, b.MTime = time.Time{}, time.Time{}
	return same && a == b
}

// words makes a Directory of words like f:name, x:executable, d:name, l:name=target.
func words(list ...string) *repb.Directory {
	m := new(repb.Directory)
	empty := digest.SHA256.Empty().Proto()
	for _, word := range list {
		switch kind, name := word[0], word[2:]; kind {
		case 'f', 'x':
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: empty, IsExecutable: kind == 'x'})
		case 'd':
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: empty})
		case 'l':
			name, target, _ := strings.Cut(name, "=")
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: target})
		}
	}
	return m
}

// largeDirectory has n entries, of all kinds.
func largeDirectory(n int) *repb.Directory {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%c:entry-%08d=target", "fdxl"[i%4], i)
	}
	return words(list...)
}
