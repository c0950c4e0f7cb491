package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

const (
	// blockBytes is how much of records, before it is compressed, makes a block.
	blockBytes = 64 << 10
	// mostFree is of how many blocks the memory is kept for the next ones.
	mostFree = 8
	// MaxRecordBytes limits the size of one record.
	MaxRecordBytes = 64 << 10
	// leastIndex and mostIndex limit the memory of a segment's index, which is one part in
	// indexParts of the program's memory. Twice that may wait to be written; if the disk is slower,
	// records are lost.
	leastIndex, mostIndex, indexParts = 1 << 20, 8 << 20, 32
	// flushEvery is how often records are written.
	flushEvery = 500 * time.Millisecond
	// segmentBytes, before they are compressed, make a segment, or an index that is full.
	segmentBytes = 128 << 20
	// segmentParts is into how many segments the kept time, or the kept bytes, are divided, so that
	// the oldest can be removed.
	segmentParts = 14
	// memoryBytes bounds a Store that has no folder, which takes one part in memoryParts.
	memoryBytes, memoryParts = 32 << 20, 8
	lockFile                 = "lock"
)

var (
	// ErrLocked: another process uses the folder.
	ErrLocked = errors.New("folder is in use by another process")
	// ErrFormat: another version wrote the files.
	ErrFormat = errors.New("a format that this version cannot read")
)

// Options are the options of a Store.
type Options struct {
	// Keep is how long records are kept; 0: until MaxBytes is reached.
	Keep time.Duration
	// MaxBytes limits the files; 0: no limit. A Store without a folder has its own limit.
	MaxBytes int64
	// Memory is the program's memory, of which the Store takes a small part; 0: no limit.
	Memory int64
	// Added is called with each new record of Add and AddBuild, encoded and preceded by its length.
	// The callee must copy it, and must not block. Nil: it is not called.
	Added  func(item []byte)
	Logger *zap.Logger
}

// indexBytes is when an index is full.
func (o Options) indexBytes() int64 {
	if o.Memory == 0 {
		return mostIndex
	}
	return min(max(o.Memory/indexParts, leastIndex), mostIndex)
}

// segmentBytes is when the file of a segment is full.
func (o Options) segmentBytes() int64 {
	if o.MaxBytes == 0 {
		return segmentBytes
	}
	return min(segmentBytes, o.MaxBytes/segmentParts)
}

// A Store keeps records. Its methods may be called concurrently.
type Store struct {
	options Options
	folder  string // empty: in memory
	lock    *os.File
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	// full has a value when there is a whole block to write.
	full chan struct{}
	// room has memory in which records are encoded, a *[]byte.
	room sync.Pool
	// writing is held by the writer, which compresses into packed.
	writing sync.Mutex
	packed  []byte

	mu sync.Mutex
	// The oldest first; records go to the last, if it is open. Guarded by mu, as all of each
	// segment is.
	segments []*segment
	next     uint32   // number of the next segment
	pending  int64    // bytes that wait
	free     [][]byte // memory of blocks that were written
	// shares are the sizes of builds in the segment that takes records, by their publishers.
	shares  map[string]*share
	lost    uint64
	failing bool // the last write failed, and was logged
}

// Open opens the records in a folder, which it creates if needed. An empty name keeps them in
// memory. Records are written only while Run runs.
func Open(folder string, o Options) (_ *Store, err error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &Store{options: o, folder: folder, next: 1, full: make(chan struct{}, 1), room: sync.Pool{New: func() any { return new([]byte) }}}
	// Blocks are small: a window larger than one costs memory for nothing.
	s.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // blocks have a checksum
	if err == nil {
		s.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderMaxMemory(1<<20))
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	if folder == "" {
		if s.options.MaxBytes = memoryBytes; o.Memory > 0 {
			s.options.MaxBytes = min(memoryBytes, o.Memory/memoryParts)
		}
		return s, nil
	}
	if err := s.load(); err != nil {
		return nil, errors.Join(fmt.Errorf("history: %w", err), s.release())
	}
	return s, nil
}

// load locks the folder and learns which segments it has.
func (s *Store) load() error {
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(s.folder, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	s.lock = lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s: %w", s.folder, ErrLocked)
	}
	names, err := filepath.Glob(filepath.Join(s.folder, "*"+segmentSuffix))
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		g, err := s.openSegment(name)
		if err != nil {
			return err
		}
		s.next = max(s.next, g.number+1)
		if g.rows > 0 {
			s.segments = append(s.segments, g)
		}
	}
	return nil
}

// Add keeps a copy of a record, and reports whether there was space. It does not block.
func (s *Store) Add(r *historypb.Record) bool {
	room := s.room.Get().(*[]byte)
	defer s.room.Put(room)
	encoded := encode(r, room)
	return s.add(r, encoded) && s.tell(encoded)
}

func (s *Store) add(r *historypb.Record, encoded []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.segmentForLocked(r, encoded)
	if g == nil {
		s.lost++
		return false
	}
	s.addLocked(g, r, encoded)
	return true
}

// tell tells Options.Added of a record that is kept.
func (s *Store) tell(encoded []byte) bool {
	if s.options.Added != nil {
		s.options.Added(encoded)
	}
	return true
}

// Import keeps records that another Store passed to Options.Added, one after another, up to the
// first damaged one.
func (s *Store) Import(items []byte) {
	for at := 0; at < len(items); {
		encoded, ok := itemAt(items, at)
		r := &historypb.Record{}
		if !ok || len(encoded) > MaxRecordBytes || proto.Unmarshal(encoded, r) != nil {
			return
		}
		next := at + 4 + len(encoded)
		s.add(r, items[at:next:next])
		at = next
	}
	s.write(false)
}

// encode returns a record with four bytes of room before it, in a memory that may be replaced by a
// larger one; nil: it is too large.
func encode(r *historypb.Record, memory *[]byte) []byte {
	encoded, err := proto.MarshalOptions{}.MarshalAppend(append((*memory)[:0], 0, 0, 0, 0), r)
	if err != nil || len(encoded) > MaxRecordBytes {
		return nil
	}
	*memory = encoded
	return encoded
}

// segmentForLocked returns the segment that a record goes to; nil: there is no room.
func (s *Store) segmentForLocked(r *historypb.Record, encoded []byte) *segment {
	if encoded == nil || s.pending > 2*s.options.indexBytes() {
		return nil
	}
	return s.openLocked(r)
}

func (s *Store) addLocked(g *segment, r *historypb.Record, encoded []byte) {
	s.pending += int64(len(encoded))
	if !g.hasRoom() {
		g.pending = append(g.pending, s.blockLocked())
	}
	if g.add(r, encoded) {
		select {
		case s.full <- struct{}{}:
		default:
		}
	}
}

// openLocked returns the segment that records go to.
func (s *Store) openLocked(r *historypb.Record) *segment {
	if n := len(s.segments); n > 0 {
		g := s.segments[n-1]
		age := time.Duration(math.MaxInt64)
		if s.options.Keep > 0 {
			age = s.options.Keep / segmentParts
		}
		if g.open() && g.index.bytes < s.options.indexBytes() && max(g.size, g.raw/4) < s.options.segmentBytes() &&
			time.Duration(r.GetEnded().AsTime().UnixMilli()-g.first)*time.Millisecond < age {
			return g
		}
	}
	g := newSegment(s.folder, s.next)
	s.next++
	s.segments = append(s.segments, g)
	s.shares = map[string]*share{}
	return g
}

// Run writes added records until ctx ends, and then the rest.
func (s *Store) Run(ctx context.Context) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	for {
		select {
		case <-s.full:
			s.write(false)
		case <-ticker.C:
			s.write(true)
			s.expire(time.Now())
		case <-ctx.Done():
			s.write(true)
			return
		}
	}
}

// Flush writes added records.
func (s *Store) Flush() { s.write(true) }

// Close writes added records and releases the folder. A closed Store must not be used.
func (s *Store) Close() error {
	s.write(true)
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	segments := s.segments
	s.segments = nil
	s.mu.Unlock()
	var errs []error
	for _, g := range segments {
		if g.file != nil {
			errs = append(errs, s.seal(g))
		}
	}
	return errors.Join(append(errs, s.release())...)
}

func (s *Store) release() error {
	s.decoder.Close()
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// Keep returns how long records are kept; 0: until Options.MaxBytes is reached.
func (s *Store) Keep() time.Duration { return s.options.Keep }

// Stats are the sizes of a Store.
type Stats struct {
	Records, Bytes int64
	// Lost is the number of records that were not kept, because the disk was too slow or failed, or
	// because a caller's builds used up their share.
	Lost uint64
	// Oldest is the end of the oldest operation; zero: there is none.
	Oldest time.Time
}

// Stats returns the present sizes.
func (s *Store) Stats() (t Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.segments {
		t.Records += int64(g.rows)
		t.Bytes += g.bytes()
	}
	if len(s.segments) > 0 {
		t.Oldest = time.UnixMilli(s.segments[0].first)
	}
	t.Lost = s.lost
	return t
}

// expire removes segments that are too old, or too many.
func (s *Store) expire(now time.Time) {
	s.writing.Lock()
	defer s.writing.Unlock()
	var gone []*segment
	s.mu.Lock()
	var bytes int64
	for _, g := range s.segments {
		bytes += g.bytes()
	}
	for len(s.segments) > 0 {
		g := s.segments[0]
		old := s.options.Keep > 0 && now.UnixMilli()-g.last > s.options.Keep.Milliseconds()
		much := s.options.MaxBytes > 0 && bytes > s.options.MaxBytes && len(s.segments) > 1
		if len(g.pending) > 0 || !old && !much {
			break
		}
		bytes -= g.bytes()
		gone = append(gone, g)
		s.segments = s.segments[1:]
	}
	s.mu.Unlock()
	for _, g := range gone {
		if err := g.remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			s.options.Logger.Warn("old records cannot be removed", zap.Error(err))
		}
	}
}
