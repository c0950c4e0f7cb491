package scrub

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"time"

	"go.uber.org/zap"
)

// A position is the progress of a pass, with its results so far.
type position struct {
	Began     time.Time
	Ended     time.Time `json:",omitzero"`
	LastWhole time.Time
	// The last shard that is done; empty: none.
	Target int
	Shard  string

	Files, Bytes, Damaged int64
	// Unlisted are shards whose files could not be listed; each counts as a damaged file.
	Unlisted int64 `json:",omitzero"`
}

// load reads a position; it ignores one in a torn file, or from the future.
func load(path string, now time.Time) (at position) {
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 9 || b[8] != '\n' || fmt.Sprintf("%08x", crc32.ChecksumIEEE(b[9:])) != string(b[:8]) {
		return position{}
	}
	if at, err = decode(b[9:]); err != nil || at.Began.After(now) || at.Ended.After(now) || at.LastWhole.After(now) {
		return position{}
	}
	return at
}

// decode decodes a position. Older files have the target under another name.
func decode(b []byte) (at position, err error) {
	older := struct {
		*position
		Shelf *int
	}{&at, &at.Target}
	err = json.Unmarshal(b, &older)
	return at, err
}

// store writes a position atomically.
func (p position) store(path string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	temp := path + ".new"
	err = os.WriteFile(temp, fmt.Appendf(nil, "%08x\n%s", crc32.ChecksumIEEE(b), b), 0o600)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// keep stores the position, unless that was done recently.
func (s *Scrubber) keep(now bool) {
	if !now && time.Since(s.kept) < keepEvery {
		return
	}
	s.kept = time.Now()
	s.mu.Lock()
	at := s.at
	s.mu.Unlock()
	if at.Began.IsZero() {
		return
	}
	if err := at.store(s.path); err != nil {
		s.options.Logger.Warn("cannot save the position of the scrub", zap.Error(err))
	}
}
