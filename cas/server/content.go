package server

import (
	"context"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/names"
)

// content returns the blobs that an instance name has. All that a Server does with blobs it does
// through the content of the request's instance name.
func (s *Server) content(instance string) cas.Content { return s.store.Of(instance) }

// reads is the content for read-only callers.
func (s *Server) reads(instance string) cas.Readable {
	if s.shared != nil {
		return s.shared
	}
	return s.content(instance)
}

// findMissing returns the digests in ds that an instance name does not have. It checks for damage
// now, because a client does not upload a blob that it believes to be present.
func (s *Server) findMissing(ctx context.Context, instance string, ds []digest.Digest) ([]digest.Digest, error) {
	if s.shared != nil {
		return s.shared.FindMissing(ctx, ds)
	}
	return s.content(instance).FindUnsound(ctx, ds, len(intake.Header(ctx, names.VouchedHeader)) > 0)
}

// FindUnsound returns the blobs in ds that an instance name does not have, or that are damaged. It
// verifies the others, for a caller that will name them in a result.
func (s *Server) FindUnsound(ctx context.Context, instance string, ds []digest.Digest) ([]digest.Digest, error) {
	return s.content(instance).FindUnsound(ctx, ds, true)
}

// A catalog reads the messages that an instance name has.
type catalog struct {
	cas.Content
	waitForMemory func(ctx context.Context, bytes int64) error // as in Options
}

func (s *Server) catalog(instance string) catalog {
	return catalog{s.content(instance), s.options.WaitForMemory}
}

// Memory of messages for each encoded byte.
const (
	listed  = 3 // with the digests in them
	decoded = 6
	resent  = 8 // decoded, and encoded in an answer
)

// reserve waits until there is room for a message of that many bytes, unless it is small.
func (c catalog) reserve(ctx context.Context, bytes, each int64) error {
	const small = 64 << 10
	if bytes <= small {
		return nil
	}
	return c.waitForMemory(ctx, bytes*each)
}
