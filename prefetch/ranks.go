package prefetch

import (
	"cmp"
	"math/bits"
	"slices"
)

// A rank is when a run first read a path, among all that it read: an earlier part of them has a
// smaller one. It takes two bits in a record.
type rank uint8

// lastRank is that of the last part, and of a path of which it is not known.
const lastRank rank = 3

const (
	rankBits     = 2
	ranksPerByte = 8 / rankBits
)

// rankOf returns the rank of the i-th of n paths: the first eighth, and then a third of the rest
// each.
func rankOf(i, n int) rank {
	switch i *= 24; {
	case i < 3*n:
		return 0
	case i < 10*n:
		return 1
	case i < 17*n:
		return 2
	}
	return lastRank
}

// A reading has the reads of one run.
type reading struct {
	paths []PathHash // ascending, each once
	ranks []rank     // of each of paths
}

// readingOf returns the reading of a run that read these paths first in this order.
func readingOf(order []PathHash) reading {
	type first struct {
		path PathHash
		i    int
	}
	firsts := make([]first, len(order))
	for i, path := range order {
		firsts[i] = first{path, i}
	}
	slices.SortFunc(firsts, func(a, b first) int {
		return cmp.Or(cmp.Compare(a.path, b.path), cmp.Compare(a.i, b.i))
	})
	firsts = slices.CompactFunc(firsts, func(a, b first) bool { return a.path == b.path })
	r := reading{paths: make([]PathHash, len(firsts)), ranks: make([]rank, len(firsts))}
	for i, f := range firsts {
		r.paths[i], r.ranks[i] = f.path, rankOf(f.i, len(order))
	}
	return r
}

// toward returns the rank that is remembered after a run in which it was another: one step nearer,
// so that after some runs it is about the middle of theirs.
func (r rank) toward(now rank) rank {
	return rank(int(r) + cmp.Compare(now, r))
}

// misranks reports whether the ranks of a run's reads differ from those of h enough to be
// remembered: by half a step on average. The order of reads of parallel programs differs a little
// each time.
func (h *history) misranks(r reading) bool {
	if h.ranks == nil {
		return true
	}
	off, i := 0, 0
	for j, path := range r.paths {
		for i < len(h.paths) && h.paths[i] < path {
			i++
		}
		if i < len(h.paths) && h.paths[i] == path {
			off += max(int(h.ranks[i])-int(r.ranks[j]), int(r.ranks[j])-int(h.ranks[i]))
		}
	}
	return 2*off > len(r.ranks)
}

// reorders counts changes of only the order of reads under one key. Some programs read in another
// order each time: their records are written less and less often.
type reorders struct{ runs, writes int }

const (
	// promptReorders are written at once: in so many runs wrong ranks become right.
	promptReorders = int(lastRank)
	// patientReorders bounds, as a power of two, how many runs are waited for then.
	patientReorders = 5
)

// due counts a run with another order of reads, and reports whether it must be written.
func (o *reorders) due() bool {
	o.runs++
	if later := o.writes - promptReorders + 1; later > 0 && o.runs < 1<<min(later, patientReorders) {
		return false
	}
	o.runs = 0
	o.writes++
	return true
}

// rank returns the rank of paths[i].
func (h *history) rank(i int) rank {
	if h.ranks == nil {
		return lastRank
	}
	return h.ranks[i]
}

// packRanks returns ranks as a record has them.
func packRanks(ranks []rank) []byte {
	packed := make([]byte, (len(ranks)+ranksPerByte-1)/ranksPerByte)
	for i, r := range ranks {
		packed[i/ranksPerByte] |= byte(r) << (i % ranksPerByte * rankBits)
	}
	return packed
}

// parseRanks returns the ranks of n paths, nil if there are not as many.
func parseRanks(packed []byte, n int) []rank {
	if n == 0 || len(packed) != (n+ranksPerByte-1)/ranksPerByte {
		return nil
	}
	ranks := make([]rank, n)
	for i := range ranks {
		ranks[i] = rank(packed[i/ranksPerByte]>>(i%ranksPerByte*rankBits)) & lastRank
	}
	return ranks
}

// foresees says when a run reads the path with the hash h, as far as is known, and whether that is
// rare: fewer than half of the runs did.
func (p *Profile) foresees(h PathHash) (when rank, rare bool) {
	if p.history == nil {
		return lastRank, false
	}
	i, ok := slices.BinarySearch(p.history.paths, h)
	if !ok {
		return lastRank, true // the filter has it by mistake
	}
	return p.history.rank(i), 2*bits.OnesCount32(p.history.readers[i]) < len(p.history.runs)
}
