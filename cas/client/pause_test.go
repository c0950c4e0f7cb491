package client

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"

	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// A blob that pauses comes with several streams, none of which repeats what has come.
func TestClientPauses(t *testing.T) {
	for _, compress := range []bool{false, true} {
		var mu sync.Mutex
		var offsets []int64
		f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
			s.received = func(m any) error {
				mu.Lock()
				defer mu.Unlock()
				offsets = append(offsets, m.(*bytestream.ReadRequest).GetReadOffset())
				return nil
			}
		})})
		data := netNoise(12 * wire.StreamChunk)
		d := f.Put(t, digest.SHA256, data)
		var got bytes.Buffer
		var starts []int64
		err := clientOf(f, Options{NoCompression: !compress}).Fetch(t.Context(), []digest.Digest{d}, func(_ digest.Digest, r io.Reader) error {
			for {
				_, err := io.CopyN(&got, r, 5*wire.StreamChunk/2)
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				r.(cas.Pauser).Pause()
				r.(cas.Pauser).Pause()
				starts = append(starts, int64(got.Len()))
			}
		})
		if err != nil || !bytes.Equal(got.Bytes(), data) {
			t.Errorf("%d bytes, %v", got.Len(), err)
		}
		if len(offsets) != len(starts)+1 {
			t.Errorf("%d streams with %d pauses", len(offsets), len(starts))
		}
		for i, start := range starts {
			// A first piece is read before the blob is delivered.
			if i+1 < len(offsets) && (offsets[i+1] < start || offsets[i+1] > start+32<<10) {
				t.Errorf("after %d bytes a stream begins at %d", start, offsets[i+1])
			}
		}
	}
}
