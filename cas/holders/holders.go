package holders

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// MaxNames bounds the names that have blobs at the same time. Adding one to a set copies the set.
const MaxNames = 1 << 16

// ErrTooManyNames is the error of Add for a name beyond MaxNames.
var ErrTooManyNames = errors.New("too many instance names have blobs here")

// A Name stands for an instance name. It begins with its family.
type Name [sha256.Size]byte

// A family stands for all instance names with one first part. Rights for an instance name are also
// for those below it: one customer can make as many of these as he likes, and is to leave room for
// others.
type family [8]byte

func (n Name) family() family { return family(n[:]) }

// NameOf returns the Name of an instance name.
func NameOf(instance string) Name {
	first, _, _ := strings.Cut(instance, "/")
	n, of := Name(sha256.Sum256([]byte(instance))), sha256.Sum256([]byte(first))
	copy(n[:], of[:len(family{})])
	return n
}

// A Set is the names that have a blob. Nil is the empty set. It belongs to a Table and does not
// change.
type Set struct {
	ids   []uint32 // of names, ascending
	blobs int      // that have this set
}

// A Table knows the sets of all blobs. The zero Table is empty. It must not be used concurrently.
type Table struct {
	ids   map[Name]uint32
	names []known // by id
	free  []uint32
	// families has the number of names of each family, of which each may have at most half.
	families map[family]int

	sets  map[string]*Set // by key
	limit int             // MaxNames, less in tests

	grown []uint32 // scratch space for one set at a time
	key   []byte   // scratch space for the key of one set at a time
}

// A known is a name with an id.
type known struct {
	name Name
	sets int // that have it; 0: the id is free
}

// Has reports whether n is in s.
func (t *Table) Has(s *Set, n Name) bool {
	if s == nil {
		return false
	}
	id, ok := t.ids[n]
	return ok && s.has(id)
}

func (s *Set) has(id uint32) bool {
	_, found := slices.BinarySearch(s.ids, id)
	return found
}

// Add returns the set s with n added. added is false if n was in it already. After an error nothing
// has changed.
func (t *Table) Add(s *Set, n Name) (_ *Set, added bool, err error) {
	id, err := t.idOf(n)
	if err != nil {
		return s, false, err
	}
	var ids []uint32
	if s != nil {
		ids = s.ids
	}
	at, found := slices.BinarySearch(ids, id)
	if found {
		return s, false, nil
	}
	t.grown = append(append(append(t.grown[:0], ids[:at]...), id), ids[at:]...)
	grown := t.join(t.grown)
	t.Drop(s)
	return grown, true, nil
}

// Drop records the removal of a blob with the set s.
func (t *Table) Drop(s *Set) {
	if s == nil {
		return
	}
	if s.blobs--; s.blobs > 0 {
		return
	}
	delete(t.sets, string(t.keyOf(s.ids)))
	for _, id := range s.ids {
		if k := &t.names[id]; k.sets > 1 {
			k.sets--
		} else {
			delete(t.ids, k.name)
			if of := k.name.family(); t.families[of] > 1 {
				t.families[of]--
			} else {
				delete(t.families, of)
			}
			*k = known{}
			t.free = append(t.free, id)
		}
	}
}

// Names yields the names in s, in any order. The Table must not change meanwhile.
func (t *Table) Names(s *Set) iter.Seq[Name] {
	return func(yield func(Name) bool) {
		if s == nil {
			return
		}
		for _, id := range s.ids {
			if !yield(t.names[id].name) {
				return
			}
		}
	}
}

// idOf returns the id of a name, which will be in a set.
func (t *Table) idOf(n Name) (uint32, error) {
	if id, ok := t.ids[n]; ok {
		return id, nil
	}
	if t.ids == nil {
		t.ids, t.sets, t.families = map[Name]uint32{}, map[string]*Set{}, map[family]int{}
	}
	of, most := n.family(), t.most()
	if len(t.ids) >= most {
		return 0, fmt.Errorf("%w: there are %d", ErrTooManyNames, most)
	}
	if t.families[of] >= most/2 {
		return 0, fmt.Errorf("%w: %d have the same first part", ErrTooManyNames, most/2)
	}
	var id uint32
	if last := len(t.free) - 1; last >= 0 {
		id, t.free = t.free[last], t.free[:last]
	} else {
		id = uint32(len(t.names))
		t.names = append(t.names, known{})
	}
	t.names[id].name = n
	t.ids[n] = id
	t.families[of]++
	return id, nil
}

func (t *Table) most() int {
	if t.limit > 0 {
		return t.limit
	}
	return MaxNames
}

// join returns the set of a blob that has these ids, which stay the caller's.
func (t *Table) join(ids []uint32) *Set {
	key := t.keyOf(ids)
	s := t.sets[string(key)]
	if s == nil {
		s = &Set{ids: slices.Clone(ids)}
		t.sets[string(key)] = s
		for _, id := range ids {
			t.names[id].sets++
		}
	}
	s.blobs++
	return s
}

// keyOf is the same for the same ids only. It holds until the next call.
func (t *Table) keyOf(ids []uint32) []byte {
	t.key = t.key[:0]
	for _, id := range ids {
		t.key = binary.LittleEndian.AppendUint32(t.key, id)
	}
	return t.key
}
