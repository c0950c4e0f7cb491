package prefetch

import (
	"math/bits"
	"slices"

	"github.com/forerunner-build/forerunner/proto/profiles"
)

// maxRuns bounds the runs of a history: each has a bit of a word.
const maxRuns = 32

// history has the paths that each of the last few runs read. It is immutable.
type history struct {
	paths   []PathHash // ascending, each once
	readers []uint32   // bit i of readers[j]: runs[i] read paths[j]; never 0
	ranks   []rank     // of each of paths; nil if unknown
	runs    []uint64   // identifies the runs, if necessary
	newest  int        // index into runs; older ones come before it, then from the end on
}

// shape bounds a history.
type shape struct {
	runs  int // at most maxRuns
	paths int
	// distinct: runs[i] is an action, and only one run of each is kept.
	distinct bool
}

// with returns h, which may be nil, with one more run in place of the oldest, and false if nothing
// changes.
func (h *history) with(run uint64, r reading, s shape) (*history, bool) {
	if h == nil {
		h = &history{}
	}
	slot, newest := h.slot(run, s)
	if s.distinct && slot < len(h.runs) && h.runs[slot] == run {
		if h.readBy(slot, r.paths) && !h.misranks(r) {
			return h, false
		}
	} else if !s.distinct && h.unanimous() && slices.Equal(h.paths, r.paths) && !h.misranks(r) {
		return h, false
	}
	most := max(len(h.paths), len(r.paths))
	next := &history{
		paths: make([]PathHash, 0, most), readers: make([]uint32, 0, most), ranks: make([]rank, 0, most),
		runs: append(make([]uint64, 0, s.runs), h.runs...), newest: newest,
	}
	if slot == len(next.runs) {
		next.runs = append(next.runs, run)
	}
	next.runs[slot] = run
	next.merge(h, r, 1<<slot)
	if len(next.paths) > s.paths && !s.distinct && len(h.paths) > 0 {
		return (*history)(nil).with(run, r, s) // rather no past than half of the run
	}
	next.trim(s.paths)
	return next, true
}

// slot returns the index into runs that a run gets, and the newest one then.
func (h *history) slot(run uint64, s shape) (slot, newest int) {
	if s.distinct {
		if i := slices.Index(h.runs, run); i >= 0 {
			return i, h.newest
		}
	}
	slot = len(h.runs)
	if slot >= s.runs {
		slot = (h.newest + 1) % len(h.runs)
	}
	return slot, slot
}

// merge fills h, which has no paths yet, from an older history and the run that the bit stands for.
func (h *history) merge(old *history, r reading, bit uint32) {
	i := 0
	for j, path := range r.paths {
		for ; i < len(old.paths) && old.paths[i] < path; i++ {
			h.append(old.paths[i], old.readers[i]&^bit, old.rank(i))
		}
		readers, when := bit, r.ranks[j]
		if i < len(old.paths) && old.paths[i] == path {
			readers |= old.readers[i]
			if old.ranks != nil {
				when = old.ranks[i].toward(when)
			}
			i++
		}
		h.append(path, readers, when)
	}
	for ; i < len(old.paths); i++ {
		h.append(old.paths[i], old.readers[i]&^bit, old.rank(i))
	}
}

func (h *history) append(path PathHash, readers uint32, r rank) {
	if readers != 0 {
		h.paths, h.readers, h.ranks = append(h.paths, path), append(h.readers, readers), append(h.ranks, r)
	}
}

// readBy reports whether a run read exactly these paths.
func (h *history) readBy(slot int, paths []PathHash) bool {
	n := 0
	for i, path := range h.paths {
		if h.readers[i]>>slot&1 == 0 {
			continue
		}
		if n == len(paths) || paths[n] != path {
			return false
		}
		n++
	}
	return n == len(paths)
}

// unanimous reports whether all runs read the same, and there was one.
func (h *history) unanimous() bool {
	all := uint32(1<<len(h.runs) - 1)
	return len(h.runs) > 0 && !slices.ContainsFunc(h.readers, func(r uint32) bool { return r != all })
}

// foreseesAs reports whether h and o make the same profile, but for the ranks: the same runs read
// the same, or all of them.
func (h *history) foreseesAs(o *history) bool {
	if h == nil || o == nil || !slices.Equal(h.paths, o.paths) {
		return false
	}
	return slices.Equal(h.readers, o.readers) && slices.Equal(h.runs, o.runs) || h.unanimous() && o.unanimous()
}

// trim drops the paths with the fewest readers that are too many.
func (h *history) trim(most int) {
	surplus := len(h.paths) - most
	if surplus <= 0 {
		return
	}
	var having [maxRuns + 1]int // how many paths have so many readers
	for _, r := range h.readers {
		having[bits.OnesCount32(r)]++
	}
	for n := range having {
		having[n] = min(having[n], surplus) // so many of them go
		surplus -= having[n]
	}
	kept := 0
	for i, r := range h.readers {
		if n := bits.OnesCount32(r); having[n] > 0 {
			having[n]--
			continue
		}
		h.paths[kept], h.readers[kept], h.ranks[kept] = h.paths[i], r, h.ranks[i]
		kept++
	}
	h.paths, h.readers, h.ranks = h.paths[:kept], h.readers[:kept], h.ranks[:kept]
}

// has reports whether a run read the path with the hash path, as far as is known.
func (h *history) has(path PathHash) bool {
	if h == nil {
		return true
	}
	_, ok := slices.BinarySearch(h.paths, path)
	return ok
}

// readByAtLeast returns the paths that so many runs read.
func (h *history) readByAtLeast(n int) []PathHash {
	var paths []PathHash
	for i, r := range h.readers {
		if bits.OnesCount32(r) >= n {
			paths = append(paths, h.paths[i])
		}
	}
	return paths
}

func (h *history) message() *profiles.History {
	if h == nil {
		return nil
	}
	m := &profiles.History{Readers: h.readers, Runs: h.runs, Newest: uint32(h.newest), Ranks: packRanks(h.ranks)}
	m.Paths = make([]uint64, len(h.paths))
	for i, path := range h.paths {
		m.Paths[i] = uint64(path)
	}
	return m
}

// parseHistory returns the history that a message holds, which it keeps, and nil if
// that is none or breaks a rule.
func parseHistory(m *profiles.History, s shape) *history {
	h := &history{readers: m.GetReaders(), runs: m.GetRuns(), newest: int(m.GetNewest())}
	if len(m.GetPaths()) != len(h.readers) || len(h.readers) > s.paths ||
		len(h.runs) > s.runs || h.newest >= len(h.runs) {
		return nil
	}
	h.ranks = parseRanks(m.GetRanks(), len(h.readers))
	h.paths = make([]PathHash, len(h.readers))
	for i, path := range m.GetPaths() {
		h.paths[i] = PathHash(path)
		if i > 0 && h.paths[i] <= h.paths[i-1] || h.readers[i] == 0 ||
			bits.Len32(h.readers[i]) > len(h.runs) {
			return nil
		}
	}
	return h
}
