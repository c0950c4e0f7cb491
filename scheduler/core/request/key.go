package request

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"strconv"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Key distinguishes actions: it is the digest of an action without its function, which workers do
// not report. The zero Key is none.
type Key struct {
	hash [digest.HashSize]byte
	// length is the size in bytes and one more.
	length int64
}

// KeyOf returns that of the action that d names; none if d is zero.
func KeyOf(d digest.Digest) (k Key) {
	if !d.IsZero() {
		d.AppendHash(k.hash[:0])
		k.length = d.SizeBytes() + 1
	}
	return k
}

// String returns "<hash>/<size>", and nothing for none.
func (k Key) String() string {
	if k == (Key{}) {
		return ""
	}
	return hex.EncodeToString(k.hash[:]) + "/" + strconv.FormatInt(k.length-1, 10)
}

// Ran is what a worker has or had: an action, of an instance name that is known only if it is
// Named. The zero Ran is none.
type Ran struct {
	Key
	Instance string
	Named    bool
}

// RanFor returns that of an action for an instance name.
func RanFor(instance string, k Key) Ran { return Ran{k, instance, true} }

// For reports whether it may have been for an instance name.
func (r Ran) For(instance string) bool { return !r.Named || r.Instance == instance }

// CompareKeys orders them by hash, then by size.
func CompareKeys(a, b Key) int {
	return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.length, b.length))
}
