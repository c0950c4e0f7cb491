package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// arrive fetches the one blob of b, which can be read meanwhile.
func (t *ReadThrough) arrive(ctx context.Context, b *batch) {
	fl := b.flights[b.digests[0]]
	err := fl.arrival.fetch(ctx)
	if err == nil {
		err = fl.arrival.keep(ctx)
	}
	if err != nil {
		err = fmt.Errorf("fetch blob %s: %w", fl.digest, err)
		if errors.Is(err, cas.ErrCorrupt) {
			err = t.doubt(ctx, fl.digest, err)
		}
		fl.arrival.drop(err)
	}
	t.end(fl, err)
}

// doubt fetches d again and as a whole, after its parts made wrong bytes: a storage that verifies
// what it reads then checks its blob, and sets it aside. The right bytes are kept for the next
// caller. It returns why d has not come: err, which is a *cas.WrongPartsError if the parts were
// wrong, or that upstream does not have it.
func (t *ReadThrough) doubt(ctx context.Context, d digest.Digest, err error) error {
	again := t.direct.Fetch(ctx, []digest.Digest{d}, func(_ digest.Digest, r io.Reader) error {
		return t.store.Put(ctx, d, r)
	})
	if again == nil {
		return errors.Join(err, &cas.WrongPartsError{Digest: d})
	}
	if errors.Is(again, cas.ErrNotFound) {
		return fmt.Errorf("%w, and then: %w", err, &cas.MissingError{Digests: []digest.Digest{d}})
	}
	return err
}
