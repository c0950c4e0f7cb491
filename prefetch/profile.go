package prefetch

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/fsac"
)

// cheapBytes is the size up to which a file is fetched that a Profile is less sure of.
const cheapBytes = 64 << 10

// Limits of filters from other programs.
const (
	// maxForeignBytes bounds a filter; gRPC messages are no longer than that by default.
	maxForeignBytes = 4 << 20
	// maxHashes limits k. Using fewer hashes than the filter was made with is right too: it only
	// adds false positives, fewer than one in 2^64 from here on.
	maxHashes = 64
)

// Profile is the set of paths of an input root that runs of an action read: directories whose
// entries they read, and files that they opened. It is a Bloom filter: it contains all paths that
// were read, and may contain others. A Profile is immutable.
type Profile struct {
	filter *bloom.BloomFilter // its capacity is m, exactly
	ones   uint               // bits that are set
	// cheap has more paths, which are worth fetching as directories and as files of at most
	// cheapBytes; may be nil. It is made of a history and not stored.
	cheap *Profile
	// history has when and how often paths were read; nil if unknown.
	history *history
	// directories are those that the last run read, which may exist again. They are not part of the
	// filter; may be nil.
	directories []digest.Digest
	// first are the files that the last run read first, which may exist again; may be nil.
	first []First
	// ranges are the parts of large files that runs read. They are not part of the filter; may be
	// nil.
	ranges ranges
}

// ProfileOptions has the size of a Profile. The zero value works.
type ProfileOptions struct {
	// MaxBytes limits the size of the filter; 0 means 128 KiB. If that is too small for
	// BitsPerPath, there are more false positives.
	MaxBytes int
	// BitsPerPath is the number of bits for each path; 0 means 14, with which about one in 800
	// other paths is a false positive.
	BitsPerPath int
}

func (o ProfileOptions) withDefaults() ProfileOptions {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 128 << 10
	}
	o.MaxBytes = min(o.MaxBytes, maxForeignBytes)
	if o.BitsPerPath <= 0 {
		o.BitsPerPath = 14
	}
	return o
}

// NewProfile makes the profile of the paths with these hashes. A hash that occurs several times
// only makes the profile larger.
func NewProfile(hashes []PathHash, o ProfileOptions) *Profile {
	o = o.withDefaults()
	m, k := dimensions(len(hashes), o)
	p := &Profile{filter: bloom.New(m, k)}
	p.add(hashes)
	return p
}

// dimensions returns the number of bits m of a filter for n paths, a prime, and the
// number of hashes k that has the fewest false positives then.
func dimensions(n int, o ProfileOptions) (m, k uint) {
	const least = 7 // the largest prime that leaves room for the end mark in one byte
	most := uint(o.MaxBytes)*8 - 1
	if wanted := uint(n) * uint(o.BitsPerPath); wanted < most {
		for m = max(wanted, least); !isPrime(m); m++ {
		}
	}
	if m == 0 || m > most {
		for m = most; !isPrime(m); m-- {
		}
	}
	k = uint(math.Round(float64(m) / float64(max(n, 1)) * math.Ln2))
	if n == 0 {
		k = 1 // nothing is found with one look
	}
	return m, min(max(k, 1), maxHashes)
}

func isPrime(n uint) bool {
	if n < 4 || n%2 == 0 {
		return n == 2 || n == 3
	}
	for d := uint(3); d*d <= n; d += 2 {
		if n%d == 0 {
			return false
		}
	}
	return true
}

// add sets the bits of hashes. Only the maker of p may call it, before p is shared.
func (p *Profile) add(hashes []PathHash) {
	m, set := uint64(p.filter.Cap()), p.filter.BitSet()
	for _, h := range hashes {
		for range p.filter.K() {
			set.Set(uint(uint64(h) % m))
			h = h.slash()
		}
	}
	p.ones = set.Count()
}

// with returns a copy of p, of the same size, that has hashes too.
func (p *Profile) with(hashes []PathHash) *Profile {
	c := &Profile{filter: p.filter.Copy()}
	c.add(hashes)
	return c
}

// ParseProfile returns the profile in a message. It neither changes nor keeps the message. It
// returns false for a malformed message: one that has no filter or a filter of no bits, does not
// end in a set bit, has no hashes, or is longer than 4 MiB. The caller treats such a message as no
// profile. If it has more than 64 hashes, only 64 are used.
func ParseProfile(m *fsac.FileSystemAccessProfile) (*Profile, bool) {
	b, k := m.GetBloomFilter(), m.GetBloomFilterHashFunctions()
	if len(b) == 0 || len(b) > maxForeignBytes || k == 0 {
		return nil, false
	}
	last := b[len(b)-1]
	length := (len(b)-1)*8 + bits.Len8(last) - 1 // the end mark is not of the filter
	if last == 0 || length == 0 {
		return nil, false
	}
	words := make([]uint64, (length+63)/64)
	for i := range words {
		var word [8]byte
		copy(word[:], b[i*8:])
		words[i] = binary.LittleEndian.Uint64(word[:])
	}
	if length%64 != 0 {
		words[len(words)-1] &^= 1 << (length % 64)
	}
	p := &Profile{filter: bloom.FromWithM(words, uint(length), min(uint(k), maxHashes))}
	p.ones = p.filter.BitSet().Count()
	return p, true
}

// Message returns p in its stored form; the caller owns the message. Bit b of the filter is bit b%8
// of byte b/8. A set bit follows the last one.
func (p *Profile) Message() *fsac.FileSystemAccessProfile {
	m := p.filter.Cap()
	b := make([]byte, 0, m/8+8)
	for _, word := range p.filter.BitSet().Words() {
		b = binary.LittleEndian.AppendUint64(b, word)
	}
	for uint(len(b)) < m/8+1 {
		b = append(b, 0)
	}
	b = b[:m/8+1]
	b[m/8] |= 1 << (m % 8)
	return &fsac.FileSystemAccessProfile{
		BloomFilter: b, BloomFilterHashFunctions: uint32(p.filter.K()),
	}
}

// containsCheap is Contains for directories and files of at most cheapBytes.
func (p *Profile) containsCheap(h PathHash) bool {
	return p.Contains(h) || p.cheap != nil && p.cheap.Contains(h)
}

// Contains reports whether the path with hash h is in the profile, with the false positives of a
// Bloom filter. If a directory is not in the profile, nothing below it is in it either.
func (p *Profile) Contains(h PathHash) bool {
	// One by one: most paths that are not in the filter are known by one or two bits.
	m, set := uint64(p.filter.Cap()), p.filter.BitSet()
	for range p.filter.K() {
		if !set.Test(uint(uint64(h) % m)) {
			return false
		}
		h = h.slash()
	}
	return true
}

// predicts reports whether entry i of dir, at the path with hash h, is likely to be read: p is less
// sure of some paths, and they count if they are directories or cheap files.
func (p *Profile) predicts(dir *tree.Directory, i int, h PathHash) bool {
	if !p.containsCheap(h) || !p.history.has(h) {
		return false
	}
	return dir.Kind(i) == tree.Dir || dir.At(i).Digest.SizeBytes() <= cheapBytes || p.Contains(h)
}

// SizeBytes returns the length of the filter in the message.
func (p *Profile) SizeBytes() int { return int(p.filter.Cap()/8) + 1 }

// Paths estimates the number of paths in the profile. If all bits of the filter are set, it returns
// the number of bits.
func (p *Profile) Paths() int {
	m, k := float64(p.filter.Cap()), float64(p.filter.K())
	if p.ones >= p.filter.Cap() {
		return int(p.filter.Cap())
	}
	return int(math.Round(-m / k * math.Log1p(-float64(p.ones)/m)))
}

// FalsePositives returns the share of unread paths for which Contains returns true, from 0 to 1.
func (p *Profile) FalsePositives() float64 {
	filled := float64(p.ones) / float64(p.filter.Cap())
	return math.Pow(filled, float64(p.filter.K()))
}
