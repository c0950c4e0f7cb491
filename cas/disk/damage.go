package disk

import (
	"hash/maphash"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxDamage bounds how many files with one fault an index remembers, with some 50 bytes each. A
// reader for which that was not enough runs again, so it must be more than leave during a long one.
const maxDamage = 1 << 17

// A fault is an event of a file that matters to its earlier readers.
type fault uint8

const (
	damaged  fault = iota // it turned out to be damaged, or may have been
	unproven              // it left while unverified, or after others had changed it before a use
	unhashed              // it came since the start, and was removed before its bytes were ever hashed
	strange               // others have changed it; if it still exists, its proof has the count
	faults                // how many there are
)

// damage remembers the latest keys whose files had a fault. Readers of such a file ask later, when
// the key may have a good file again. It stores hashes of the keys. Two keys with the same hash
// count as the same, which is as harmless as a forgotten key.
type damage struct {
	count  uint64 // of all since the start
	forgot uint64 // how many of them, the oldest, are not remembered
	last   map[uint64]uint64
	order  []uint64 // of those remembered, a hash as often as it was added
}

// damageSeed makes hashes of keys unpredictable.
var damageSeed = maphash.MakeSeed()

func (m *damage) add(k digest.Digest) {
	if m.last == nil {
		m.last = map[uint64]uint64{}
	}
	m.count++
	h := maphash.Comparable(damageSeed, k)
	m.last[h] = m.count
	m.order = append(m.order, h)
	if len(m.order) <= maxDamage {
		return
	}
	m.forgot++
	if m.last[m.order[0]] == m.forgot {
		delete(m.last, m.order[0])
	}
	m.order = m.order[1:]
}

// among returns the keys in ks for which since returns true.
func (m *damage) among(ks []digest.Digest, count uint64) (some []digest.Digest) {
	for _, k := range ks {
		if m.since(k, count) {
			some = append(some, k)
		}
	}
	return some
}

// since reports whether a file of k was damaged after the first count damaged files. If this is no
// longer known for k, it answers for all keys together.
func (m *damage) since(k digest.Digest, count uint64) bool {
	return m.forgot > count || m.count > count && m.last[maphash.Comparable(damageSeed, k)] > count
}
