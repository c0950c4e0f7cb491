package history

import (
	"go.uber.org/zap"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// shareParts: the builds of one caller get at most 1/shareParts of a segment, both of its file and
// of its index.
const shareParts = 2

// A share is the size of one caller's builds in the segment that receives records.
type share struct {
	bytes, index int64 // bytes is the compressed size
	isExceeded   bool  // the share was exceeded, which was logged
}

// AddBuild stores a copy of a build's record from a caller, like Add. A caller cannot displace the
// records of others: while the Store is more than half full, each caller's builds get at most half
// of the new space, and further ones are lost.
func (s *Store) AddBuild(r *historypb.Record, caller string) bool {
	encoded := encode(r, new([]byte))
	compressed := packedBytes(encoded)
	s.mu.Lock()
	added, isNews := s.addBuildLocked(r, encoded, caller, compressed)
	s.mu.Unlock()
	if isNews {
		s.options.Logger.Warn("builds are dropped: those of their publisher take half of the latest records",
			zap.String("publisher", caller))
	}
	return added && s.tell(encoded)
}

// addBuildLocked reports whether the build was added and, if not, whether this is the first loss
// that must be logged.
func (s *Store) addBuildLocked(r *historypb.Record, encoded []byte, caller string, compressed int64) (added, isNews bool) {
	g := s.segmentForLocked(r, encoded)
	if g == nil {
		s.lost++
		return false, false
	}
	of := s.shares[caller]
	if of == nil {
		of = &share{}
		s.shares[caller] = of
	}
	if s.isFullLocked(of) {
		s.lost++
		isNews = !of.isExceeded
		of.isExceeded = true
		return false, isNews
	}
	before := g.index.bytes
	s.addLocked(g, r, encoded)
	of.bytes += compressed
	of.index += g.index.bytes - before
	return true, false
}

// isFullLocked reports whether one more build in a share would displace records of others.
func (s *Store) isFullLocked(of *share) bool {
	if s.options.MaxBytes == 0 || of.bytes < s.options.segmentBytes()/shareParts && of.index < s.options.indexBytes()/shareParts {
		return false
	}
	var bytes int64
	for _, g := range s.segments {
		bytes += g.bytes()
	}
	return bytes > s.options.MaxBytes/2
}
