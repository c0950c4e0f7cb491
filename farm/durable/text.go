package durable

import (
	"context"
	"errors"

	"github.com/forerunner-build/forerunner/records"
)

// A Text is one durable record.
type Text struct {
	Store records.Durable
	Key   records.Key
}

// String returns the location of the text.
func (k Text) String() string {
	if folder, ok := k.Store.(*records.Folder); ok {
		return folder.Path(k.Key)
	}
	return "record " + k.Key.String()
}

// Read returns the text, or nil if there is none.
func (k Text) Read(ctx context.Context) ([]byte, error) {
	text, err := k.Store.Get(ctx, k.Key)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return nil, nil
	case errors.Is(err, records.ErrDamaged):
		return nil, err
	case err != nil:
		return nil, Unanswered{Err: err}
	}
	return text, nil
}

// Write stores all of text or nothing of it.
func (k Text) Write(ctx context.Context, text []byte) error { return k.Store.Put(ctx, k.Key, text) }

// An Unanswered error is that of a request to a server that did not answer. It ends a scheduler's
// term, after which it may get another one, but not the program: nothing here is wrong.
type Unanswered struct{ Err error }

// Error returns the reason.
func (u Unanswered) Error() string { return u.Err.Error() }

// Unwrap returns the cause.
func (u Unanswered) Unwrap() error { return u.Err }
