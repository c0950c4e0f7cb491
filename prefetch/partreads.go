package prefetch

import (
	"math/bits"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// PartReads records which parts of large files one run read, as far as they are visible: if a file
// was local when it was opened, the kernel reads it without the worker. The zero value is ready for
// use, and the methods may be called concurrently. It takes at most 2 MiB.
type PartReads struct {
	mu    sync.Mutex
	files map[digest.Digest]*partRead // guarded by mu; at most maxRanged
}

// partRead has the reads of one file.
type partRead struct {
	chunks []uint64 // a bit for each chunk of chunkBytes
	unseen bool     // more may have been
}

// Read records that n bytes of d were read at off.
func (r *PartReads) Read(d digest.Digest, off, n int64) {
	size := d.SizeBytes()
	if n = min(n, size-off); size <= largeBytes || size > maxRangedBytes || off < 0 || n <= 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.files[d]
	if f == nil {
		if len(r.files) == maxRanged {
			return
		}
		if r.files == nil {
			r.files = map[digest.Digest]*partRead{}
		}
		f = &partRead{chunks: make([]uint64, (size+64*chunkBytes-1)/(64*chunkBytes))}
		r.files[d] = f
	}
	for chunk := off / chunkBytes; chunk <= (off+n-1)/chunkBytes; chunk++ {
		f.chunks[chunk/64] |= 1 << (chunk % 64)
	}
}

// Unseen records that reads of d are invisible from now on.
func (r *PartReads) Unseen(d digest.Digest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.files[d]; f != nil {
		f.unseen = true
	}
}

// parts returns the parts that were read of a file of that size.
func (f *partRead) parts(size int64) (parts span.Set) {
	for i, word := range f.chunks {
		for ; word != 0; word &= word - 1 {
			from := (int64(i)*64 + int64(bits.TrailingZeros64(word))) * chunkBytes
			p := span.Span{From: from, To: min(from+chunkBytes, size)}
			if last := len(parts) - 1; last >= 0 && parts[last].To == p.From {
				parts[last].To = p.To
			} else {
				parts = append(parts, p)
			}
		}
	}
	return parts
}

// Seen returns the recorded reads of files below root. It returns each file once, at the first of
// its paths that was read. read is Recorder.Has. Seen reads only directories that local has.
func (r *PartReads) Seen(
	local func(digest.Digest) (*tree.Directory, bool), root digest.Digest, read func(PathHash) bool,
) (seen []Seen) {
	r.mu.Lock()
	left := make(map[digest.Digest]Seen, len(r.files))
	for d, f := range r.files {
		left[d] = Seen{Digest: d, Parts: f.parts(d.SizeBytes()), All: !f.unseen}
	}
	r.mu.Unlock()
	if len(left) == 0 {
		return nil // as of most actions
	}
	t := newTour(local, root)
	for at, dir := range t.all(read) {
		for i := range dir.Len() {
			switch h := at.hash.Child(dir.Name(i)); dir.Kind(i) {
			case tree.Dir:
				t.enter(dir.At(i).Digest, h)
			case tree.File:
				d := dir.At(i).Digest
				if s, ok := left[d]; ok && read(h) {
					s.Path = h
					seen = append(seen, s)
					delete(left, d)
				}
			}
		}
		if len(left) == 0 {
			break
		}
	}
	return seen
}
