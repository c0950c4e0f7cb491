package prefetch

import (
	"encoding/binary"
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// largeBytes is the size above which a file is fetched in a call of its own, and known parts help.
const largeBytes = 1 << 20

// The limits of known parts of large files.
const (
	// chunkBytes is how finely it is remembered: the kernel seldom reads less.
	chunkBytes = 64 << 10
	// joinBytes is how far apart two parts may be to be fetched as one: the bytes in between take
	// less than a round trip.
	joinBytes = 256 << 10
	// maxRangedBytes bounds the size of a file.
	maxRangedBytes = 16 << 30
	// maxRanged bounds the files of a record, and maxRanges their parts, of each and of all.
	maxRanged    = 64
	maxRanges    = 512
	maxAllRanges = 2048
	// restless: parts are forgotten if they are more than so many times as many as the last run
	// read.
	restless = 2
)

// ranged is a large file and the parts of it that runs read. It is immutable.
type ranged struct {
	path PathHash
	blob uint64 // see blobOf
	size int64
	// parts begin and end at chunks, or end with the file; there is at least one.
	parts span.Set
}

// ranges are files, the one that changed last in front. They are immutable.
type ranges []ranged

// blobOf is enough of a digest to know it again, for a hint.
func blobOf(d digest.Digest) uint64 { return binary.BigEndian.Uint64(d.AppendHash(nil)) }

// A Seen has the visible reads of a large file in one run.
type Seen struct {
	Path   PathHash
	Digest digest.Digest
	Parts  span.Set
	// All means that the run read nothing else of the file.
	All bool
}

// alike reports whether files of these sizes may be versions of the same one, with parts at about
// the same places.
func alike(a, b int64) bool { return max(a, b)-min(a, b) <= max(a, b)/8 }

// of returns the expected parts of a file: those of the same blob, or else those of a similar file
// at the same path. It is nil if none are known.
func (r ranges) of(path PathHash, d digest.Digest) span.Set {
	if len(r) == 0 || d.SizeBytes() <= largeBytes {
		return nil
	}
	blob := blobOf(d)
	if i := slices.IndexFunc(r, func(f ranged) bool { return f.blob == blob && f.size == d.SizeBytes() }); i >= 0 {
		return r[i].parts
	}
	if i := r.at(path); i >= 0 && alike(r[i].size, d.SizeBytes()) {
		return within(r[i].parts, d.SizeBytes())
	}
	return nil
}

func (r ranges) at(path PathHash) int {
	return slices.IndexFunc(r, func(f ranged) bool { return f.path == path })
}

// within returns the parts within a file of that size.
func within(parts span.Set, size int64) span.Set {
	var in span.Set
	for _, p := range parts {
		if p.From < size {
			in = append(in, span.Span{From: p.From, To: min(p.To, size)})
		}
	}
	return in
}

// coarser returns parts with their surroundings: whole chunks, with those near each other joined,
// and at most maxRanges.
func coarser(parts span.Set, size int64) (out span.Set) {
	for join := int64(joinBytes); ; join *= 2 {
		out = nil
		for _, p := range parts {
			p.From = p.From / chunkBytes * chunkBytes
			p.To = min((p.To+chunkBytes-1)/chunkBytes*chunkBytes, size)
			if last := len(out) - 1; last >= 0 && p.From-out[last].To <= join {
				out[last].To = max(out[last].To, p.To)
			} else {
				out = append(out, p)
			}
		}
		if len(out) <= maxRanges {
			return out
		}
	}
}

// after returns the parts that are known after one more run: nil if it is as good to fetch the
// whole file.
func after(known span.Set, s Seen) span.Set {
	size := s.Digest.SizeBytes()
	union := slices.Clone(within(known, size))
	for _, p := range s.Parts {
		union.Add(p)
	}
	own := coarser(s.Parts, size)
	union = coarser(union, size)
	if s.All && union.Bytes() > restless*own.Bytes() {
		union = own
	}
	if 2*union.Bytes() > size {
		return nil
	}
	return union
}

// learn returns the ranges after a run, and false if they are the same. Files whose reads were not
// seen are unchanged.
func (r ranges) learn(seen []Seen) (ranges, bool) {
	next, changed := r, false
	for _, s := range seen {
		size := s.Digest.SizeBytes()
		if len(s.Parts) == 0 || size <= largeBytes || size > maxRangedBytes {
			continue
		}
		i := next.at(s.Path)
		known := next.of(s.Path, s.Digest)
		parts := after(known, s)
		if len(parts) == 0 && i < 0 || i >= 0 && slices.Equal(parts, next[i].parts) && next[i].size == size {
			continue
		}
		var later ranges
		if len(parts) > 0 {
			later = append(later, ranged{path: s.Path, blob: blobOf(s.Digest), size: size, parts: parts})
		}
		for j, f := range next {
			if j != i {
				later = append(later, f)
			}
		}
		next, changed = later, true
	}
	return next.bounded(), changed
}

// bounded drops the files that did not change for longest.
func (r ranges) bounded() ranges {
	all := 0
	for i, f := range r {
		if all += len(f.parts); i == maxRanged || all > maxAllRanges {
			return r[:i:i]
		}
	}
	return r
}

// count returns how many parts there are.
func (r ranges) count() (n int) {
	for _, f := range r {
		n += len(f.parts)
	}
	return n
}

func rangesMessage(r ranges) *profiles.Ranges {
	if len(r) == 0 {
		return nil
	}
	m := &profiles.Ranges{}
	for _, f := range r {
		file := &profiles.RangedFile{Path: uint64(f.path), Blob: f.blob, Size: f.size}
		var at int64
		for _, p := range f.parts {
			chunks := (p.To - p.From + chunkBytes - 1) / chunkBytes
			file.Chunks = append(file.Chunks, uint32((p.From-at)/chunkBytes), uint32(chunks))
			at = p.From + chunks*chunkBytes
		}
		m.Files = append(m.Files, file)
	}
	return m
}

// parseRanges returns the ranges of a message, nil if it is invalid.
func parseRanges(m *profiles.Ranges) ranges {
	if len(m.GetFiles()) > maxRanged {
		return nil
	}
	var r ranges
	for _, f := range m.GetFiles() {
		parts, ok := parseParts(f.GetChunks(), f.GetSize())
		if !ok {
			return nil
		}
		r = append(r, ranged{path: PathHash(f.GetPath()), blob: f.GetBlob(), size: f.GetSize(), parts: parts})
	}
	if r.count() > maxAllRanges {
		return nil
	}
	return r
}

// parseParts is false for parts that no run can have read.
func parseParts(chunks []uint32, size int64) (parts span.Set, ok bool) {
	if len(chunks) == 0 || len(chunks)%2 != 0 || len(chunks) > 2*maxRanges || size <= largeBytes || size > maxRangedBytes {
		return nil, false
	}
	var at int64
	for i := 0; i < len(chunks); i += 2 {
		p := span.Span{From: at + int64(chunks[i])*chunkBytes}
		at = p.From + int64(chunks[i+1])*chunkBytes
		p.To = min(at, size)
		if i > 0 && chunks[i] == 0 || p.From >= p.To {
			return nil, false
		}
		parts = append(parts, p)
	}
	return parts, true
}

// maxParted bounds the files of a Race of which parts come first.
const maxParted = 16

// parted are the large files whose known parts are requested before the rest. The queue's mu guards
// it.
type parted struct {
	known ranges
	files map[digest.Digest]int64 // of which parts wait, or were asked for: up to there
	left  int                     // of so many more files parts may be asked for
}

func newParted(known ranges) parted {
	return parted{known: known, files: map[digest.Digest]int64{}, left: maxParted}
}

// admits reports whether parts of the file d at path must be requested, and records that.
func (p *parted) admits(path PathHash, d digest.Digest) bool {
	if _, again := p.files[d]; again || len(p.known.of(path, d)) == 0 {
		return false
	}
	p.files[d] = 0
	return true
}

// mayGo reports whether parts of d may be asked for: it is one of few, or some were already.
func (p *parted) mayGo(d digest.Digest) bool { return p.left > 0 || p.files[d] > 0 }

// take returns as many bytes of the parts of the file d at path as may be asked for, the first ones
// that were not, and whether that is all.
func (p *parted) take(path PathHash, d digest.Digest, most int64) (parts span.Set, all bool) {
	if p.files[d] == 0 {
		p.left--
	}
	for _, part := range p.known.of(path, d) {
		part.From = max(part.From, p.files[d])
		if part.From >= part.To {
			continue
		}
		end := part.To
		if part.To = min(end, part.From+most); part.From < part.To {
			parts = append(parts, part)
			most -= part.To - part.From
			p.files[d] = part.To
		}
		if part.To < end {
			return parts, false
		}
	}
	return parts, true
}
