package server

import (
	"bytes"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
)

const (
	// recentBlob limits the size of a recent blob. recentBytes limits the memory of all, which is one
	// part in recentParts of the program's.
	recentBlob               = 16 << 10
	recentBytes, recentParts = 8 << 20, 256
)

// A recent has the small blobs that came lately. A client uploads an action and its command, and
// has the action executed at once: to read both from files would cost a scheduler as much as to
// schedule the action. What is here was verified when it came, and memory does not change.
type recent struct {
	blobs *bounded.Memory[ownBlob, []byte]
}

// An ownBlob is a blob that an instance name has: others do not see it.
type ownBlob struct {
	instance string
	digest   digest.Digest
}

// newRecent returns an empty recent of a program with so many bytes of memory; 0: no limit.
func newRecent(memory int64) recent {
	most := int64(recentBytes)
	if memory > 0 {
		most = min(most, memory/recentParts)
	}
	return recent{bounded.NewMemory[ownBlob, []byte](most)}
}

// add keeps a copy of a verified blob, if it is small.
func (r recent) add(instance string, d digest.Digest, b []byte) {
	if len(b) <= recentBlob {
		r.blobs.Add(ownBlob{instance, d}, bytes.Clone(b), int64(len(instance)+len(b)))
	}
}

// get returns a blob, which the caller must not change; false: it is not here.
func (r recent) get(instance string, d digest.Digest) ([]byte, bool) {
	return r.blobs.Get(ownBlob{instance, d})
}
