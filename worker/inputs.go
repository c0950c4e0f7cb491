package worker

import (
	"context"
	"fmt"
	"os"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/vfs"
)

// inputs let an input root read large files while they arrive in the store, and have blobs
// looked at that it finds wrong.
type inputs struct {
	*fetch.ReadThrough
	store *disk.Store
}

var (
	_ vfs.Source         = inputs{}
	_ vfs.ArrivingSource = inputs{}
	_ vfs.Verifier       = inputs{}
)

// Verify implements vfs.Verifier.
func (i inputs) Verify(ctx context.Context, d digest.Digest) error { return i.store.Verify(ctx, d) }

// OpenArriving implements vfs.ArrivingSource.
func (i inputs) OpenArriving(ctx context.Context, d digest.Digest) (*os.File, vfs.Arrival, error) {
	file, arrival, err := i.ReadThrough.OpenArriving(ctx, d)
	if arrival == nil { // and not an interface that holds nil
		return file, nil, err
	}
	return file, arrival, err
}

// verify fails if an input could not be read, or is not what its digest says: that
// has shaped whatever was made of it. It waits for inputs of which a part was
// read before the whole had come.
func (a *action) verify(ctx context.Context) error {
	if err := a.root.Verify(ctx); err != nil {
		return fmt.Errorf("the command met an input that cannot be read: %w", err)
	}
	return nil
}
