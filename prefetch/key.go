package prefetch

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/profiles"
	"github.com/forerunner-build/forerunner/records/record"
)

// An Action is what Profiles know actions by. Those with the same Instance and Digest
// are the same; those that differ in the Digest alone are alike.
type Action struct {
	Instance string
	Digest   digest.Digest // of digest.OfReduced
	// Where Mnemonic, TargetKind and Tool are all empty, nothing is alike.
	Mnemonic   string // of RequestMetadata, as the following
	TargetKind string
	Tool       string // path of the program that the action starts
	Platform   string // its properties in one form
	// Configuration is configuration_id.
	Configuration string
}

// exactKey is false for an action that has no digest.
func (a Action) exactKey() (record.Key, bool) {
	return record.Key{Bucket: names.ProfileBucket, Instance: a.Instance, Digest: a.Digest}, !a.Digest.IsZero()
}

// coarseKey is false for an action of which too little is known.
func (a Action) coarseKey() (record.Key, bool) {
	if a.Digest.IsZero() || a.Mnemonic == "" && a.TargetKind == "" && a.Tool == "" {
		return record.Key{}, false
	}
	d, _, err := digest.OfMessage(a.Digest.Function(), &profiles.CoarseKey{
		Mnemonic: a.Mnemonic, TargetKind: a.TargetKind, Tool: a.Tool,
		Platform: a.Platform, Configuration: a.Configuration,
	})
	return record.Key{Bucket: names.CoarseBucket, Instance: a.Instance, Digest: d}, err == nil
}

// run returns what tells actions apart in a coarse history.
func (a Action) run() uint64 {
	hash := a.Digest.Hash()
	b, err := hex.DecodeString(hash[:16])
	if err != nil {
		panic("prefetch: a digest has a hash that is not hexadecimal: " + hash)
	}
	return binary.BigEndian.Uint64(b)
}
