package fair

import (
	"iter"
	"slices"
	"sort"
)

// A ranking holds sortKeys in order, in chunks. An entry is found by its rank, so it need not know
// its position: removing the first one, which is the most frequent case, touches no other entry.
// Insertion and removal cost O(log n), the move of a chunk and, sometimes, of the list of chunks.
//
// The first one is in the ranking itself: it is read with each decision. Most leaves have no other.
type ranking struct {
	head sortKey
	// chunks have the entries after head. They are never empty, nor longer than maxChunk.
	chunks [][]sortKey
	n      int
}

const maxChunk = 64

func (r *ranking) len() int { return r.n }

// first returns the first sortKey; nil if there is none.
func (r *ranking) first() *sortKey {
	if r.n == 0 {
		return nil
	}
	return &r.head
}

// all yields the sortKeys in order. They must not change meanwhile.
func (r *ranking) all() iter.Seq[sortKey] {
	return func(yield func(sortKey) bool) {
		if r.n == 0 || !yield(r.head) {
			return
		}
		for _, chunk := range r.chunks {
			for _, p := range chunk {
				if !yield(p) {
					return
				}
			}
		}
	}
}

func (r *ranking) insert(p sortKey) {
	r.n++
	switch {
	case r.n == 1:
		r.head = p
		return
	case p.before(r.head):
		p, r.head = r.head, p
	}
	if len(r.chunks) == 0 {
		r.chunks = append(r.chunks, []sortKey{p})
		return
	}
	c, i := r.find(p)
	if c == len(r.chunks) {
		// It is the last chunk: if keys arrive in order, chunks become full.
		if len(r.chunks[c-1]) == maxChunk {
			r.chunks = append(r.chunks, []sortKey{p})
		} else {
			r.chunks[c-1] = append(r.chunks[c-1], p)
		}
		return
	}
	if chunk, half := r.chunks[c], maxChunk/2; len(chunk) == maxChunk {
		r.chunks = slices.Insert(r.chunks, c+1, slices.Clone(chunk[half:]))
		clear(chunk[half:])
		r.chunks[c] = chunk[:half]
		if i > half {
			c, i = c+1, i-half
		}
	}
	r.chunks[c] = slices.Insert(r.chunks[c], i, p)
}

// remove removes a sortKey, which must exist.
func (r *ranking) remove(p sortKey) {
	r.n--
	switch {
	case p != r.head:
		r.take(r.find(p))
	case r.n == 0:
		r.head = sortKey{}
	default:
		r.head = r.chunks[0][0]
		r.take(0, 0)
	}
}

// take takes out what is at an index of a chunk.
func (r *ranking) take(c, i int) {
	switch {
	case len(r.chunks[c]) == 1:
		r.chunks = slices.Delete(r.chunks, c, c+1)
	case i == 0:
		r.chunks[c][0].entry = nil
		r.chunks[c] = r.chunks[c][1:]
	default:
		r.chunks[c] = slices.Delete(r.chunks[c], i, i+1)
	}
}

// find returns where in chunks p is, or where the first is that it is before: chunk and index.
func (r *ranking) find(p sortKey) (chunk, index int) {
	chunk = sort.Search(len(r.chunks), func(i int) bool {
		last := r.chunks[i][len(r.chunks[i])-1]
		return !last.before(p)
	})
	if chunk < len(r.chunks) {
		of := r.chunks[chunk]
		index = sort.Search(len(of), func(i int) bool { return !of[i].before(p) })
	}
	return chunk, index
}
