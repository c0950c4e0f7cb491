package fuse

import "github.com/forerunner-build/forerunner/cas/digest"

// Nodes returns how many paths the kernel knows.
func (l *Layer) Nodes() int {
	l.nodes.mu.Lock()
	defer l.nodes.mu.Unlock()
	return len(l.nodes.byID)
}

// ArrivalState is the state of an arriving blob.
type ArrivalState uint8

// The states of an arrival.
const (
	NoArrival ArrivalState = iota
	Awaited
	Ended // complete, or failed for good; paths that were opened before still use it
)

// BlobState is how a blob is open.
type BlobState struct {
	Whole    bool // as a file
	Users    int  // of the file
	InKernel bool // the kernel reads it without asking
	Arrival  ArrivalState
}

// Blob returns how the blob d is open.
func (l *Layer) Blob(d digest.Digest) BlobState {
	t := &l.blobs
	t.mu.Lock()
	defer t.mu.Unlock()
	var s BlobState
	if b := t.byDigest[d]; b != nil {
		s.Whole, s.Users, s.InKernel = true, b.users, b.file == nil
	}
	switch ar := t.arriving[d]; {
	case ar == nil:
	case ar.whole || ar.err != nil:
		s.Arrival = Ended
	default:
		s.Arrival = Awaited
	}
	return s
}
