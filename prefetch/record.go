package prefetch

import (
	"slices"

	"github.com/forerunner-build/forerunner/cas/digest"
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
