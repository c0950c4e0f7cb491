package prefetch

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// chunkModel has a flag for each chunk of one file.
type chunkModel []bool

func (m chunkModel) mark(p span.Span) {
	for i := range m {
		from := int64(i) * chunkBytes
		if from < p.To && p.From < from+chunkBytes {
			m[i] = true
		}
	}
}

// joined fills gaps that are small.
func (m chunkModel) joined() chunkModel {
	out := make(chunkModel, len(m))
	last := -1
	for i, in := range m {
		if !in {
			continue
		}
		if last >= 0 && int64(i-last-1)*chunkBytes <= joinBytes {
			for j := last; j < i; j++ {
				out[j] = true
			}
		}
		out[i], last = true, i
	}
	return out
}

func (m chunkModel) set(size int64) (s span.Set) {
	for i, in := range m {
		if in {
			s.Add(span.Span{From: int64(i) * chunkBytes, To: min(int64(i+1)*chunkBytes, size)})
		}
	}
	return s
}

// after is what is known after a run.
func (m chunkModel) after(reads []span.Span, all bool, size int64) chunkModel {
	own, union := make(chunkModel, len(m)), append(chunkModel(nil), m...)
	for _, p := range reads {
		own.mark(p)
		union.mark(p)
	}
	own, union = own.joined(), union.joined()
	if all && union.set(size).Bytes() > 2*own.set(size).Bytes() {
		union = own
	}
	if 2*union.set(size).Bytes() > size {
		return make(chunkModel, len(m))
	}
	return union
}

// TestRanges compares what is remembered, through a store, with one flag for each chunk.
func TestRanges(t *testing.T) {
	forgot, kept := 0, 0
	for seed := range uint64(150) {
		random := rand.New(rand.NewPCG(seed, 0))
		s := newStorage()
		sizes := []int64{largeBytes + 1 + random.Int64N(8<<20), largeBytes + 1 + random.Int64N(60<<20), 3 << 20}
		paths := []string{"a/one", "a/two", "three"}
		root := s.put(t, fmt.Sprintf("a/one:%d", sizes[0]), fmt.Sprintf("a/two:%d", sizes[1]), fmt.Sprintf("three:%d", sizes[2]))
		model := make([]chunkModel, len(paths))
		for i, size := range sizes {
			model[i] = make(chunkModel, (size+chunkBytes-1)/chunkBytes)
		}
		records := &fakeStore{}
		for range 6 {
			var recorder Recorder
			var reads PartReads
			for i, path := range paths {
				recorder.Read(path, tree.File)
				d := s.at(t, root, path)
				var parts []span.Span
				for range random.IntN(12) {
					from := random.Int64N(sizes[i])
					p := span.Span{From: from, To: from + 1 + random.Int64N(min(300_000, sizes[i]-from))}
					parts = append(parts, p)
					reads.Read(d, p.From, p.To-p.From+random.Int64N(2)*(p.To/sizes[i])*1000) // beyond the end
				}
				all := random.IntN(3) > 0
				if !all {
					reads.Unseen(d)
				}
				if len(parts) == 0 {
					kept++
					continue // a run that was not seen to read it
				}
				before := model[i].set(sizes[i]).Bytes()
				if model[i] = model[i].after(parts, all, sizes[i]); model[i].set(sizes[i]).Bytes() < before {
					forgot++
				}
			}
			p := NewProfiles(records, ProfilesOptions{})
			recorder.Read(fmt.Sprint("new", random.IntN(3)), tree.File) // which changes the rest of the record
			p.Learn(t.Context(), actionOf("a"), recorder.Hashes(), Inputs{}, reads.Seen(s.everywhere, root, recorder.Has)...)
			found, _ := NewProfiles(records, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
			for i, path := range paths {
				got := found.ranges.of(HashPath(path), s.at(t, root, path))
				if want := model[i].set(sizes[i]); !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, %s of %d: %v, want %v", seed, path, sizes[i], got, want)
				}
			}
		}
	}
	if forgot < 20 || kept < 20 {
		t.Errorf("too little happened: %d forgotten, %d kept", forgot, kept)
	}
}

// Runs that say nothing new about files are not written, and runs of actions that are alike tell
// each other.
func TestRangesAreWrittenSeldom(t *testing.T) {
	records := &fakeStore{}
	p := NewProfiles(records, ProfilesOptions{})
	s := newStorage()
	root := s.put(t, "large:50000000")
	learn := func(name string, parts ...span.Span) {
		var recorder Recorder
		var reads PartReads
		recorder.Read("large", tree.File)
		for _, part := range parts {
			reads.Read(s.at(t, root, "large"), part.From, part.To-part.From)
		}
		p.Learn(t.Context(), compileOf(name), recorder.Hashes(), Inputs{}, reads.Seen(s.everywhere, root, recorder.Has)...)
	}
	one := span.Span{From: 5 << 20, To: 6 << 20}
	learn("a", one)
	puts := records.puts
	if puts != 2 {
		t.Errorf("%d writes of a run, want one for each of two records", puts)
	}
	learn("a", one)
	learn("a", span.Span{From: 5<<20 + 70_000, To: 6<<20 - 70_000})
	learn("a")
	if records.puts != puts {
		t.Errorf("written %d times for nothing new", records.puts-puts)
	}
	learn("a", one, span.Span{From: 9 << 20, To: 9<<20 + 1})
	if records.puts == puts {
		t.Error("something new was not written")
	}
	found, origin := NewProfiles(records, ProfilesOptions{}).Find(t.Context(), compileOf("b"))
	if origin != Coarse || len(found.ranges) != 1 {
		t.Errorf("%s: %v", origin, found)
	}
}

// What is remembered is bounded: the files that changed last stay, and of a file that is read
// everywhere a little the parts grow together.
func TestRangesAreBounded(t *testing.T) {
	blob := func(i int, size int64) digest.Digest { return fileDigest(fmt.Sprint(i), size) }
	var known ranges
	for i := range 3 * maxRanged {
		known, _ = known.learn([]Seen{{Path: PathHash(i), Digest: blob(i, 50_000_000), Parts: span.Set{{From: 0, To: 9}}, All: true}})
	}
	if last := known[0]; len(known) != maxRanged || last.path != 3*maxRanged-1 {
		t.Errorf("%d files are remembered, %x first", len(known), last.path)
	}
	const huge = 4 << 30
	var parts span.Set
	for at := int64(0); at < huge; at += 1 << 20 {
		parts.Add(span.Span{From: at, To: at + 1})
	}
	known, _ = ranges(nil).learn([]Seen{{Path: 1, Digest: blob(1, huge), Parts: parts, All: true}})
	if len(known) > 0 && len(known[0].parts) > maxRanges {
		t.Errorf("%d parts are remembered", len(known[0].parts))
	}
	known = nil
	for i := range 40 {
		var parts span.Set
		for at := int64(0); at < 100<<20; at += 1 << 20 {
			parts.Add(span.Span{From: at, To: at + 1})
		}
		known, _ = known.learn([]Seen{{Path: PathHash(i), Digest: blob(i, 200<<20), Parts: parts, All: true}})
	}
	if n := known.count(); n > maxAllRanges || n < maxAllRanges/2 {
		t.Errorf("%d parts in all", n)
	}
	if back := parseRanges(rangesMessage(known)); !reflect.DeepEqual(back, known) {
		t.Error("what is at its bounds does not come back")
	}
}

// FuzzRanges: whatever a store holds, parts are inside their file, in order, and as many as there
// may be, and what comes back from a store is what went there.
func FuzzRanges(f *testing.F) {
	good := ranges{{path: 1, blob: 2, size: 5 << 20, parts: span.Set{{From: 0, To: chunkBytes}, {From: 3 << 20, To: 5 << 20}}}}
	add := func(m *profiles.Ranges) {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	add(rangesMessage(good))
	for _, bad := range []*profiles.RangedFile{
		{Size: 5 << 20},
		{Size: 5 << 20, Chunks: []uint32{1}},
		{Size: 5 << 20, Chunks: []uint32{0, 0}},
		{Size: 5 << 20, Chunks: []uint32{0, 1, 0, 1}},
		{Size: 5 << 20, Chunks: []uint32{80, 1}},
		{Size: -1, Chunks: []uint32{0, 1}},
		{Size: 1 << 62, Chunks: []uint32{0, 1}},
		{Size: 5 << 20, Chunks: []uint32{0, 1 << 31, 1 << 31, 1 << 31}},
		{Size: 100, Chunks: []uint32{0, 1}},
		{Size: 5 << 20, Chunks: make([]uint32, 2*maxRanges+2)},
	} {
		m := &profiles.Ranges{Files: []*profiles.RangedFile{rangesMessage(good).GetFiles()[0], bad}}
		if got := parseRanges(m); got != nil {
			f.Errorf("%v: %v", bad, got)
		}
		add(m)
	}
	add(&profiles.Ranges{Files: make([]*profiles.RangedFile, 0)})
	f.Fuzz(func(t *testing.T, b []byte) {
		var m profiles.Ranges
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		r := parseRanges(&m)
		if len(r) > maxRanged || r.count() > maxAllRanges {
			t.Errorf("%d files, %d parts", len(r), r.count())
		}
		for _, file := range r {
			at := int64(-1)
			for _, p := range file.parts {
				if p.From <= at || p.From >= p.To || p.To > file.size {
					t.Errorf("of %d bytes: %v", file.size, file.parts)
				}
				at = p.To
			}
		}
		if back := parseRanges(rangesMessage(r)); !reflect.DeepEqual(back, r) {
			t.Errorf("%v came back as %v", r, back)
		}
	})
}
