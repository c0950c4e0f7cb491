package server

import (
	"github.com/forerunner-build/forerunner/cas"
)

// content returns the blobs that an instance name has. All that a Server does with blobs it does through the
// content of the request's instance name.
func (s *Server) content(instance string) cas.Content { return s.store.Of(instance) }

// reads is content for who only reads.
func (s *Server) reads(instance string) cas.Readable {
	if s.lends != nil {
		return s.lends
	}
	return s.content(instance)
}

// A catalog reads the messages that an instance name has.
type catalog struct{ cas.Content }

func (s *Server) catalog(instance string) catalog { return catalog{s.content(instance)} }
