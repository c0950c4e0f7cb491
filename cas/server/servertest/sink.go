package servertest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Sink collects the blobs that a Fetch delivers.
type Sink struct {
	mu  sync.Mutex
	Got map[digest.Digest][]byte // once the Fetch has returned
}

// Take takes one blob. A second delivery is an error.
func (s *Sink) Take(d digest.Digest, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, twice := s.Got[d]; twice {
		return errors.New("delivered twice")
	}
	if s.Got == nil {
		s.Got = map[digest.Digest][]byte{}
	}
	s.Got[d] = b
	return nil
}

// Check fails the test unless exactly want was delivered.
func (s *Sink) Check(t *testing.T, want map[digest.Digest][]byte) {
	t.Helper()
	if !maps.EqualFunc(s.Got, want, bytes.Equal) {
		t.Errorf("%d blobs were delivered, want %d, or their bytes differ", len(s.Got), len(want))
	}
}
