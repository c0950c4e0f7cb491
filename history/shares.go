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
	added, news := s.addBuildLocked(rowOf(r), encoded, caller, compressed)
	s.mu.Unlock()
	s.log(news)
	return added && s.tell(encoded)
}

// addBuildLocked reports whether the build was added and, if not, what of it must be logged.
func (s *Store) addBuildLocked(r *Row, encoded []byte, caller string, compressed int64) (bool, news) {
	g := s.segmentForLocked(r, encoded)
	if g == nil {
		return false, s.loseLocked(encoded)
	}
	of := s.shares[caller]
	if of == nil {
		of = &share{}
		s.shares[caller] = of
	}
	if s.isFullLocked(of) {
		s.losses.count++
		if of.isExceeded {
			return false, nil
		}
		of.isExceeded = true
		return false, func(log *zap.Logger) {
			log.Warn("build records are dropped: this publisher's builds fill half of the latest records", zap.String("publisher", caller))
		}
	}
	g.index.settle()
	before := g.index.bytes
	s.addLocked(g, r, encoded)
	g.index.settle()
	of.bytes += compressed
	of.index += g.index.bytes - before
	return true, nil
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
