package core

import (
	"encoding/hex"
	"strconv"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// An action is the digest of one less its function, which workers do not say. The
// zero action is none.
type action struct {
	hash [digest.HashSize]byte
	// length is the size in bytes and one more.
	length int64
}

// actionOf returns what d names; none if d is zero.
func actionOf(d digest.Digest) (a action) {
	if !d.IsZero() {
		d.AppendHash(a.hash[:0])
		a.length = d.SizeBytes() + 1
	}
	return a
}

// String returns "<hash>/<size>", and nothing for none.
func (a action) String() string {
	if a == (action{}) {
		return ""
	}
	return hex.EncodeToString(a.hash[:]) + "/" + strconv.FormatInt(a.length-1, 10)
}
