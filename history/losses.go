package history

import "go.uber.org/zap"

// losses has what is known of records that are not stored.
type losses struct {
	count uint64
	// missed is the number of records that the disk did not take in time since it last took all.
	missed uint64
	// failing: the last write failed. losing: there was no room for a record. Both were logged.
	failing, losing bool
}

// news is a line for the log, after the lock; nil: there is none.
type news func(*zap.Logger)

func (s *Store) log(n news) {
	if n != nil {
		n(s.options.Logger)
	}
}

// loseLocked counts a record for which there is no room; if it was too large, it has no encoding.
func (s *Store) loseLocked(encoded []byte) news {
	if encoded != nil {
		return s.missLocked(1)
	}
	s.losses.count++
	return func(log *zap.Logger) {
		log.Warn("a record of a completed operation is lost: it is too large", zap.Int("limit", MaxRecordBytes))
	}
}

// missLocked counts records that the disk did not take in time. The first of several is news.
func (s *Store) missLocked(records int) news {
	s.losses.count += uint64(records)
	s.losses.missed += uint64(records)
	if records == 0 || s.losses.losing {
		return nil
	}
	s.losses.losing = true
	return func(log *zap.Logger) {
		log.Warn("records of completed operations are lost: the disk does not take them in time", zap.String("folder", s.folder))
	}
}

// wrote tells the log the first of several failed writes and, when all that waited is written or
// there is much room again, the end of failures and losses.
func (s *Store) wrote(path string, err error) {
	s.mu.Lock()
	l := &s.losses
	isFirst := err != nil && !l.failing
	isLast := err == nil && (l.failing || l.losing) && s.pending < s.options.indexBytes()
	missed := l.missed
	switch {
	case isFirst:
		l.failing = true
	case isLast:
		*l = losses{count: l.count}
	}
	s.mu.Unlock()
	switch {
	case isFirst:
		s.options.Logger.Warn("records of completed operations cannot be written: they wait in memory", zap.String("file", path), zap.Error(err))
	case isLast:
		s.options.Logger.Info("records of completed operations are written again", zap.Uint64("lost", missed))
	}
}
