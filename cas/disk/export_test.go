package disk

import (
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Access to internals of a Store for tests of several packages.
var (
	Rot            = rot
	RotSilently    = rotSilently
	Forget         = forget
	Age            = age
	Text           = storeText
	WantConsistent = storeWantConsistent
)

// FilePath returns the file of d.
func FilePath(s *Store, d digest.Digest) string { return s.files.path(d) }

// IsVerified reports whether d was verified lately, and not changed since.
func IsVerified(s *Store, d digest.Digest) bool {
	return s.verifier.unchanged(version{d, s.files.index.lookup(d).generation})
}

// Generation tells the file of d from all others that it had; there is false if it has none.
func Generation(s *Store, d digest.Digest) (generation uint64, there bool) {
	generation, _, there = s.files.look(d)
	return generation, there
}

var _ testing.TB
