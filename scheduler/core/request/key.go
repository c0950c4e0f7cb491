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

// KeyOf returns the Key of the action that d names; zero if d is zero.
func KeyOf(d digest.Digest) (k Key) {
	if !d.IsZero() {
		d.AppendHash(k.hash[:0])
		k.length = d.SizeBytes() + 1
	}
	return k
}

// String returns "<hash>/<size>", or "" for the zero Key.
func (k Key) String() string {
	if k == (Key{}) {
		return ""
	}
	return hex.EncodeToString(k.hash[:]) + "/" + strconv.FormatInt(k.length-1, 10)
}

// A Ran is an action that a worker has or had, for an instance name that is known only if it is
// Named. The zero Ran is none.
type Ran struct {
	Key
	Instance string
	Named    bool
}

// RanFor returns the Ran of an action for an instance name.
func RanFor(instance string, k Key) Ran { return Ran{k, instance, true} }

// For reports whether it may have been for an instance name.
func (r Ran) For(instance string) bool { return !r.Named || r.Instance == instance }

// CompareKeys orders keys by hash, then by size.
func CompareKeys(a, b Key) int {
	return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]), cmp.Compare(a.length, b.length))
}
