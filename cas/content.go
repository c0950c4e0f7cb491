package cas

import (
	"context"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/holders"
)

// content is the blobs that an instance name has, as a Server shows them. All that a Server does with blobs it
// does through the content of the request's instance name.
type content interface {
	readable
	// Contains reports whether d is there.
	Contains(d digest.Digest) bool
	// containsSound does, of a blob that is vouched for.
	containsSound(ctx context.Context, d digest.Digest) (bool, error)
	// PutBytes stores d, whose bytes are b.
	PutBytes(ctx context.Context, d digest.Digest, b []byte) error
	// arriving is called when all of d has come in a stream, before it is put into its place, and gained
	// when it is there.
	arriving(ctx context.Context, d digest.Digest) error
	gained(d digest.Digest) error
}

var _ content = (*Store)(nil)

// arriving implements content: whoever begins to bring d has had it looked at.
func (s *Store) arriving(context.Context, digest.Digest) error { return nil }

// gained implements content: all that is there is everybody's.
func (s *Store) gained(digest.Digest) error { return nil }

// content returns the blobs that an instance name has.
func (s *Server) content(instance string) content {
	if s.store.possession == nil {
		return s.store
	}
	return held{s.store, holders.NameOf(instance)}
}

// reads is content for who only reads.
func (s *Server) reads(instance string) readable {
	if s.lends != nil {
		return s.lends
	}
	return s.content(instance)
}

// A catalog reads the messages that an instance name has.
type catalog struct{ content }

func (s *Server) catalog(instance string) catalog { return catalog{s.content(instance)} }
