package history

import (
	"go.uber.org/zap"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// shareParts is in how many parts of a segment, in its file and in its index, the builds of one
// caller have to fit.
const shareParts = 2

// A share is what the builds that one caller published take of the segment that records go to.
type share struct {
	bytes, index int64 // bytes are compressed
	isExceeded   bool  // which was logged
}

// AddBuild is Add for a build's record from a caller. A caller cannot displace the records of
// others: while the Store is more than half full, each caller's builds get at most half of the new
// space, and further ones are lost.
func (s *Store) AddBuild(r *historypb.Record, caller string) bool {
	encoded := encode(r, new([]byte))
	compressed := int64(len(s.encoder.EncodeAll(encoded, nil)))
	s.mu.Lock()
	added, isNews := s.addBuildLocked(r, encoded, caller, compressed)
	s.mu.Unlock()
	if isNews {
		s.options.Logger.Warn("builds are dropped: those of their publisher take half of the latest records",
			zap.String("publisher", caller))
	}
	return added && s.tell(encoded)
}

// addBuildLocked reports whether a build was added or, if not, whether it is the first one of many
// that finds no room in a share.
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

// isFullLocked reports whether more in a share would push out what there is of others.
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
