package prefetch

import (
	"encoding/binary"
	"encoding/hex"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// The buckets of a Store.
const (
	ExactBucket  = "profile" // keyed by reduced action digest, as Buildbarn's service is
	CoarseBucket = "coarse"
)

// A Key names a record of a Store.
type Key struct {
	Bucket   string
	Instance string // of REv2; may be empty
	Digest   digest.Digest
}

// An Action is what Profiles know actions by. Those with the same Instance and Digest
// are the same; those that differ in the Digest alone are alike.
type Action struct {
	Instance string
	Digest   digest.Digest // of ReducedDigest
	// Where Mnemonic, TargetKind and Tool are all empty, nothing is alike.
	Mnemonic   string // of RequestMetadata, as the following
	TargetKind string
	Tool       string // path of the program that the action starts
	Platform   string // its properties in one form
	// Configuration is configuration_id.
	Configuration string
}

// ReducedDigest returns the digest of an Action that only keeps command_digest and
// platform of a: the key of Buildbarn's caches. It is zero where a cannot be encoded.
func ReducedDigest(fn digest.Function, a *repb.Action) digest.Digest {
	d, _, err := digest.OfMessage(fn, &repb.Action{
		CommandDigest: a.GetCommandDigest(), Platform: a.GetPlatform(),
	})
	if err != nil {
		return digest.Digest{}
	}
	return d
}

// exactKey is false for an action that has no digest.
func (a Action) exactKey() (Key, bool) {
	return Key{Bucket: ExactBucket, Instance: a.Instance, Digest: a.Digest}, !a.Digest.IsZero()
}

// coarseKey is false for an action of which too little is known.
func (a Action) coarseKey() (Key, bool) {
	if a.Digest.IsZero() || a.Mnemonic == "" && a.TargetKind == "" && a.Tool == "" {
		return Key{}, false
	}
	d, _, err := digest.OfMessage(a.Digest.Function(), &profiles.CoarseKey{
		Mnemonic: a.Mnemonic, TargetKind: a.TargetKind, Tool: a.Tool,
		Platform: a.Platform, Configuration: a.Configuration,
	})
	return Key{Bucket: CoarseBucket, Instance: a.Instance, Digest: d}, err == nil
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
