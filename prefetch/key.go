package prefetch

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/records/record"
)

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
