package cas

import (
	"errors"
	"fmt"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// The kinds of errors that callers branch on with errors.Is. An error about a
// malformed digest is digest.ErrInvalid, one about a malformed Directory tree.ErrInvalid.
var (
	// ErrNotFound means that the blob or action result does not exist.
	ErrNotFound = digest.ErrNotFound
	// ErrCorrupt: bytes do not have the digest they were announced under.
	ErrCorrupt = errors.New("content does not match its digest")
	// ErrNoSpace: the blob does not fit, because it is larger than the whole store, because the
	// stored blobs are in use, or because the disk is full.
	ErrNoSpace = errors.New("no space in the store")
	// ErrTooManyHolders: too many instance names have blobs. The eviction of other blobs does not
	// help.
	ErrTooManyHolders = errors.New("no room for another instance name in the store")
	// ErrUnwritable: the machine does not let the store change its folder, or the file in a blob's
	// place. Other stores may have the blob, and this store may later.
	ErrUnwritable = errors.New("the store cannot be written")
)

// A NeverFitsError is an ErrNoSpace that is independent of the store's state: a blob is larger than
// the whole store.
type NeverFitsError struct{ MaxBytes int64 }

// Error has the size of the store.
func (e *NeverFitsError) Error() string {
	return fmt.Sprintf("%v: it is larger than all of the store, %d", ErrNoSpace, e.MaxBytes)
}

// Is reports whether target is ErrNoSpace.
func (e *NeverFitsError) Is(target error) bool { return target == ErrNoSpace }

// A MissingError names the missing blobs. errors.Is(err, ErrNotFound) holds for it.
type MissingError struct{ Digests []digest.Digest }

// Error names the first missing blob and counts the others.
func (e *MissingError) Error() string {
	switch len(e.Digests) {
	case 0:
		return "blobs not found"
	case 1:
		return fmt.Sprintf("blob %s not found", e.Digests[0])
	}
	return fmt.Sprintf("blob %s and %d others not found", e.Digests[0], len(e.Digests)-1)
}

// Is reports whether target is ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == ErrNotFound }

// A DamagedError names blobs whose files did not match their digests. They are set aside: the store
// does not have them any more. errors.Is(err, ErrCorrupt) holds for it.
type DamagedError struct{ Digests []digest.Digest }

// Error names the first damaged blob and counts the others.
func (e *DamagedError) Error() string {
	switch len(e.Digests) {
	case 0:
		return "blobs were damaged in the store"
	case 1:
		return fmt.Sprintf("blob %s was damaged in the store", e.Digests[0])
	}
	return fmt.Sprintf("blob %s and %d others were damaged in the store", e.Digests[0], len(e.Digests)-1)
}

// Is reports whether target is ErrCorrupt.
func (e *DamagedError) Is(target error) bool { return target == ErrCorrupt }

// A WrongPartsError names a blob whose parts were wrong and may have been used before the whole
// blob was verified. The store has fetched it again. errors.Is(err, ErrCorrupt) holds for it.
type WrongPartsError struct{ Digest digest.Digest }

// Error names the blob.
func (e *WrongPartsError) Error() string {
	return fmt.Sprintf("parts of blob %s came wrong; it was fetched again", e.Digest)
}

// Is reports whether target is ErrCorrupt.
func (e *WrongPartsError) Is(target error) bool { return target == ErrCorrupt }
