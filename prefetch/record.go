package prefetch

import (
	"encoding/binary"
	"encoding/hex"
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/records/record"
)

// A Record is the record of an action's runs in a store, for display.
type Record struct {
	// Profile has the expected reads of the next run.
	Profile *Profile
	last    []PathHash // ascending; nil if it is not known
}

// ParseRecord decodes an exact record of a store. The record may be a FileSystemAccessProfile from
// a service. It returns false if the record is malformed.
func ParseRecord(value []byte) (Record, bool) {
	k := exactRules(ProfileOptions{}.withDefaults()).parse(value, digest.SHA256)
	if k.filter == nil {
		return Record{}, false
	}
	r := Record{Profile: k.filter()}
	if h := k.history; h != nil && len(h.runs) > 0 {
		r.last = []PathHash{}
		for i, path := range h.paths {
			if h.readers[i]>>h.newest&1 != 0 {
				r.last = append(r.last, path)
			}
		}
	}
	return r, true
}

// KnowsLast reports whether the reads of the last run are known.
func (r Record) KnowsLast() bool { return r.last != nil }

// ReadLast reports whether the last run read the path with that hash, without false positives.
func (r Record) ReadLast(h PathHash) bool {
	_, ok := slices.BinarySearch(r.last, h)
	return ok
}

// An Action identifies an action in Profiles. Actions with equal Instance and Digest are the same;
// actions with equal Instance and Kind are similar.
type Action struct {
	Instance string
	Digest   digest.Digest // of digest.OfReduced
	kind.Kind
}

// exactKey is false for an action that has no digest.
func (a Action) exactKey() (record.Key, bool) {
	return record.Key{Bucket: names.ProfileBucket, Instance: a.Instance, Digest: a.Digest}, !a.Digest.IsZero()
}

// coarseKey is false for an action of which too little is known.
func (a Action) coarseKey() (record.Key, bool) {
	if a.Digest.IsZero() {
		return record.Key{}, false
	}
	d, ok := a.Kind.Digest(a.Digest.Function())
	return record.Key{Bucket: names.CoarseBucket, Instance: a.Instance, Digest: d}, ok
}

// run returns the id of an action in a coarse history.
func (a Action) run() uint64 {
	hash := a.Digest.Hash()
	b, err := hex.DecodeString(hash[:16])
	if err != nil {
		panic("prefetch: a digest has a hash that is not hexadecimal: " + hash)
	}
	return binary.BigEndian.Uint64(b)
}
