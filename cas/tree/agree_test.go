package tree

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// expectAgreement compares Parse with the protobuf library. Only where that
// minds that a string is not UTF-8 they may differ.
func expectAgreement(t *testing.T, b []byte) (valid bool) {
	t.Helper()
	d, err := Parse(digest.SHA256, b)
	want, wantErr := refEntries(digest.SHA256, b)
	if wantErr != nil {
		if err == nil && !strings.Contains(wantErr.Error(), "UTF-8") {
			t.Errorf("%x: accepted, but: %v", b, wantErr)
		}
		return false
	}
	if err != nil {
		t.Errorf("%x: %v", b, err)
		return false
	}
	if d.Len() != len(want) {
		t.Errorf("%x: %d entries, want %d", b, d.Len(), len(want))
		return false
	}
	for i, w := range want {
		if got := d.At(i); !sameEntry(got, w) || d.Kind(i) != w.Kind || d.Name(i) != w.Name {
			t.Errorf("%x: entry %d is %+v, want %+v", b, i, got, w)
		}
		if got, ok := d.Find(w.Name); !ok || !sameEntry(got, w) {
			t.Errorf("%x: found %+v, %t, want %+v", b, got, ok, w)
		}
	}
	return true
}

// randomMessage makes a Directory of up to 12 entries, in order and mostly valid.
func randomMessage(r *rand.Rand) *repb.Directory {
	m := new(repb.Directory)
	name := ""
	for range r.IntN(12) {
		name += string(rune('a' + r.IntN(26))) // longer names come later
		props := randomProperties(r)
		d := digest.Of(digest.SHA256, []byte(name)).Proto()
		switch r.IntN(3) {
		case 0:
			m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: d, IsExecutable: r.IntN(2) == 0, NodeProperties: props})
		case 1:
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d})
		case 2:
			m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: name, Target: "../" + name, NodeProperties: props})
		}
	}
	if r.IntN(4) == 0 {
		m.NodeProperties = randomProperties(r)
	}
	return m
}

func randomProperties(r *rand.Rand) *repb.NodeProperties {
	if r.IntN(2) == 0 {
		return nil
	}
	p := &repb.NodeProperties{Properties: []*repb.NodeProperty{{Name: "name", Value: fmt.Sprint(r.Int())}}}
	if r.IntN(2) == 0 {
		p.UnixMode = wrapperspb.UInt32(r.Uint32N(0o10000))
	}
	switch r.IntN(3) {
	case 0:
		p.Mtime = &timestamppb.Timestamp{Seconds: r.Int64N(2e9), Nanos: r.Int32N(1e9)}
	case 1:
		p.Mtime = &timestamppb.Timestamp{Seconds: r.Int64() - r.Int64(), Nanos: r.Int32() - r.Int32()}
	}
	return p
}

// scramble encodes a message in an unusual but valid way: fields out of order, repeated or in
// parts, with unknown fields between them, at every depth of nested messages.
func scramble(r *rand.Rand, b []byte, depth int) []byte {
	type field struct{ whole, value []byte }
	var fields []field
	for len(b) > 0 {
		_, typ, n := protowire.ConsumeTag(b)
		m := protowire.ConsumeFieldValue(1, typ, b[n:])
		if n < 0 || m < 0 {
			return b
		}
		f := field{whole: b[:n+m]}
		if typ == protowire.BytesType && depth > 0 && r.IntN(2) == 0 {
			f.value, _ = protowire.ConsumeBytes(b[n:])
			if inner := scramble(r, f.value, depth-1); r.IntN(3) > 0 {
				f.whole = protowire.AppendBytes(append([]byte(nil), b[:n]...), inner)
			}
		}
		fields = append(fields, f)
		b = b[n+m:]
	}
	if r.IntN(3) == 0 {
		r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}
	var out []byte
	for _, f := range fields {
		out = append(out, f.whole...)
		switch r.IntN(8) {
		case 0:
			out = append(out, f.whole...)
		case 1:
			out = protowire.AppendTag(out, 1+protowire.Number(r.IntN(9)), protowire.Fixed32Type)
			out = protowire.AppendFixed32(out, r.Uint32())
		case 2:
			out = protowire.AppendTag(out, 100, protowire.StartGroupType)
			out = protowire.AppendTag(out, 1, protowire.VarintType)
			out = protowire.AppendVarint(out, r.Uint64())
			out = protowire.AppendTag(out, 100, protowire.EndGroupType)
		case 3:
			out = protowire.AppendTag(out, 1+protowire.Number(r.IntN(9)), protowire.VarintType)
			out = protowire.AppendVarint(out, r.Uint64())
		}
	}
	return out
}

// mutate changes, drops or adds a few bytes.
func mutate(r *rand.Rand, b []byte) []byte {
	b = append([]byte(nil), b...)
	for range 1 + r.IntN(3) {
		if len(b) == 0 {
			return b
		}
		i := r.IntN(len(b))
		switch r.IntN(4) {
		case 0:
			b[i] ^= 1 << r.IntN(8)
		case 1:
			b[i] = byte(r.Uint32())
		case 2:
			b = append(b[:i], b[i+1:]...)
		case 3:
			b = append(b[:i], append([]byte{byte(r.Uint32())}, b[i:]...)...)
		}
	}
	return b
}

func TestParseAgreesWithProtobuf(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	valid := map[string]int{}
	for range 20_000 {
		b := marshal(t, randomMessage(r))
		for name, b := range map[string][]byte{
			"plain": b, "scrambled": scramble(r, b, 3), "mutated": mutate(r, b), "shallow": scramble(r, b, 0),
		} {
			if expectAgreement(t, b) {
				valid[name]++
			}
		}
		if t.Failed() {
			return
		}
	}
	for name, least := range map[string]int{"plain": 20_000, "scrambled": 1000, "mutated": 1000, "shallow": 1000} {
		if valid[name] < least {
			t.Errorf("only %d of the %s messages are valid, which proves little", valid[name], name)
		}
	}
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		b := marshal(f, randomMessage(r))
		f.Add(b)
		f.Add(scramble(r, b, 3))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		expectAgreement(t, b)
		// These two are laxer, but not to the point of falling over.
		if _, err := Parse(digest.SHA256, b); err == nil {
			if _, err := ReferencesOf(digest.SHA256, b); err != nil {
				t.Errorf("%x: %v", b, err)
			}
		}
		_, _ = SplitTree(b)
	})
}
