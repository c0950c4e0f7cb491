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
	// blockBytes is the uncompressed size of a full block.
	blockBytes = 64 << 10
	// mostData limits the memory with which a segment in memory begins.
	mostData = 1 << 20
	// mostFree is the number of blocks whose memory is kept for reuse.
	mostFree = 32
	// MaxRecordBytes limits the size of one record.
	MaxRecordBytes = 64 << 10
	// leastIndex and mostIndex limit the memory of a segment's index. Between these limits it is
	// 1/indexParts of the program's memory. Records of up to twice that size may wait to be
	// written, and indexes of that size; if the disk is too slow, further records are lost.
	leastIndex, mostIndex, indexParts = 1 << 20, 8 << 20, 32
	// flushEvery is the interval of writes.
	flushEvery = 500 * time.Millisecond
	// segmentBytes is the uncompressed size of a full segment, unless its index is full earlier.
	segmentBytes = 128 << 20
	// segmentParts is the number of segments that share Options.Keep or Options.MaxBytes. The
	// oldest segment is removed as a whole.
	segmentParts = 14
	// memoryBytes limits a Store without a folder, which also takes at most 1/memoryParts of the
	// program's memory.
	memoryBytes, memoryParts = 32 << 20, 8
	lockFile                 = "lock"
	// FreeBytes precede an encoded record: they get its length.
	FreeBytes = 4
)

var (
	// ErrLocked means that another process uses the folder.
	ErrLocked = errors.New("folder is in use by another process")
	// ErrFormat means that another version wrote the files.
	ErrFormat = errors.New("a format that this version cannot read")
)

// Options are the options of a Store.
type Options struct {
	// Keep is how long records are kept; 0: until they exceed MaxBytes.
	Keep time.Duration
	// MaxBytes limits the size of the files; 0: no limit. A Store without a folder has its own
	// limit.
	MaxBytes int64
	// Memory is the memory limit of the program, of which the Store takes a small part; 0: no
	// limit.
	Memory int64
	// Added is called with each new record of Add and AddBuild. item is the encoded record,
	// preceded by its length. The function must copy item, and must not block. It may be nil.
	Added  func(item []byte)
	Logger *zap.Logger
}

// indexBytes returns the size of a full index.
func (o Options) indexBytes() int64 {
	if o.Memory == 0 {
		return mostIndex
	}
	return min(max(o.Memory/indexParts, leastIndex), mostIndex)
}

// segmentBytes returns the size of the file of a full segment.
func (o Options) segmentBytes() int64 {
	if o.MaxBytes == 0 {
		return segmentBytes
	}
	return min(segmentBytes, o.MaxBytes/segmentParts)
}

// A Store stores records. Its methods may be called concurrently.
type Store struct {
	options Options
	folder  string // empty: in memory
	lock    *os.File
	decoder *zstd.Decoder // of earlier files
	// create is createFile, or what a test has in its place.
	create func(path string) (file, error)
	// full has a token when there is a whole block to write.
	full chan struct{}
	// buffers has memory for encoding records, as *[]byte.
	buffers sync.Pool
	// The writer holds writing; it compresses into packed.
	writing sync.Mutex
	packed  []byte

	mu sync.Mutex
	// segments are ordered, the oldest first. New records go to the last one, if it is open. mu
	// guards segments and everything in them.
	segments []*segment
	next     uint32   // number of the next segment
	pending  int64    // size of blocks that wait to be written
	free     [][]byte // memory for new blocks
	// shares has, by publisher, the size of builds in the segment that receives records.
	shares map[string]*share
	losses losses
}

// Open opens the records in a folder, and creates the folder if necessary. Without a folder name it
// stores records in memory. Records are written only while Run runs.
func Open(folder string, o Options) (_ *Store, err error) {
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	s := &Store{
		options: o, folder: folder, create: createFile, next: 1,
		full: make(chan struct{}, 1), buffers: sync.Pool{New: func() any { return new([]byte) }},
	}
	if s.decoder, err = newDecoder(); err != nil {
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

// load locks the folder and opens its segments.
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
		if errors.Is(err, ErrFormat) {
			return err
		}
		isReadable := err == nil
		if !isReadable {
			g = s.unreadable(name, err)
		}
		if g == nil {
			continue
		}
		s.next = max(s.next, g.number+1)
		if g.rows > 0 || !isReadable {
			s.segments = append(s.segments, g)
		}
	}
	return s.removeStrays()
}

// Add stores a copy of a record, and reports whether there was room. It does not block.
func (s *Store) Add(r *historypb.Record) bool {
	buffer := s.buffers.Get().(*[]byte)
	defer s.buffers.Put(buffer)
	encoded := encode(r, buffer)
	return s.add(rowOf(r), encoded) && s.tell(encoded)
}

// AddEncoded is Add for a record that the caller has encoded, with its row. item is the record after
// FreeBytes, which AddEncoded uses; nil: the record is too large.
func (s *Store) AddEncoded(row *Row, item []byte) bool {
	if len(item) > MaxRecordBytes {
		item = nil
	}
	return s.add(row, item) && s.tell(item)
}

func (s *Store) add(r *Row, encoded []byte) bool {
	s.mu.Lock()
	g := s.segmentForLocked(r, encoded)
	if g == nil {
		news := s.loseLocked(encoded)
		s.mu.Unlock()
		s.log(news)
		return false
	}
	s.addLocked(g, r, encoded)
	s.mu.Unlock()
	return true
}

// tell passes a stored record to Options.Added.
func (s *Store) tell(encoded []byte) bool {
	if s.options.Added != nil {
		s.options.Added(encoded)
	}
	return true
}

// Import adds records that another Store passed to Options.Added. items has the records one after
// another; Import stops at the first damaged one.
func (s *Store) Import(items []byte) {
	for at := 0; at < len(items); {
		encoded, ok := itemAt(items, at)
		r := &historypb.Record{}
		if !ok || len(encoded) > MaxRecordBytes || proto.Unmarshal(encoded, r) != nil {
			return
		}
		next := at + FreeBytes + len(encoded)
		s.add(rowOf(r), items[at:next:next])
		at = next
	}
	s.write(false)
}

// encode returns an encoded record after FreeBytes. It uses memory, and replaces it by larger
// memory if necessary. It returns nil if the record is too large.
func encode(r *historypb.Record, memory *[]byte) []byte {
	encoded, err := proto.MarshalOptions{}.MarshalAppend(append((*memory)[:0], make([]byte, FreeBytes)...), r)
	if err != nil || len(encoded) > MaxRecordBytes {
		return nil
	}
	*memory = encoded
	return encoded
}

// segmentForLocked returns the segment for a record; nil if there is no room.
func (s *Store) segmentForLocked(r *Row, encoded []byte) *segment {
	if encoded == nil || s.isBehindLocked() {
		return nil
	}
	return s.openLocked(r)
}

// isBehindLocked reports whether too much waits for the disk.
func (s *Store) isBehindLocked() bool {
	most := 2 * s.options.indexBytes()
	var indexes int64
	for i := len(s.segments) - 2; i >= 0 && s.folder != "" && s.segments[i].index != nil; i-- {
		indexes += s.segments[i].index.bytes
	}
	return s.pending > most || indexes > most
}

func (s *Store) addLocked(g *segment, r *Row, encoded []byte) {
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

// openLocked returns the segment that receives records.
func (s *Store) openLocked(r *Row) *segment {
	if n := len(s.segments); n > 0 {
		g := s.segments[n-1]
		age := time.Duration(math.MaxInt64)
		if s.options.Keep > 0 {
			age = s.options.Keep / segmentParts
		}
		if g.open() && g.index.bytes < s.options.indexBytes() && max(g.size, g.raw/4) < s.options.segmentBytes() &&
			time.Duration(r.Ended-g.first)*time.Millisecond < age {
			return g
		}
	}
	g := newSegment(s.folder, s.next)
	s.next++
	s.segments = append(s.segments, g)
	s.shares = map[string]*share{}
	return g
}

// Run writes added records until ctx ends, and then the remaining ones.
func (s *Store) Run(ctx context.Context) {
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	var clock clock
	start, trial := time.Now(), min(clockTrial, s.options.Keep/segmentParts)
	for {
		select {
		case <-s.full:
			s.write(false)
		case <-ticker.C:
			s.write(true)
			now := time.Now()
			if !clock.isTrusted(now, now.Sub(start), trial) {
				now = time.Time{}
			}
			s.expire(now)
		case <-ctx.Done():
			s.write(true)
			return
		}
	}
}

// Flush writes all added records.
func (s *Store) Flush() { s.write(true) }

// Close writes all added records and releases the folder. A closed Store must not be used.
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
		if g.path != "" {
			s.abandon(g)
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

// Keep returns how long records are kept; 0: until they exceed Options.MaxBytes.
func (s *Store) Keep() time.Duration { return s.options.Keep }

// Stats has figures of a Store.
type Stats struct {
	Records, Bytes int64
	// Lost is the number of records that were not stored because the disk was too slow or failed,
	// because they were too large, or because a caller's builds exceeded their share.
	Lost uint64
	// Oldest is the end of the oldest operation; zero if there is none.
	Oldest time.Time
}

// Stats returns the present figures.
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
	t.Lost = s.losses.count
	return t
}

// expire removes segments that are too old or exceed the limit; if the time is zero, none is too old.
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
		old := s.options.Keep > 0 && !now.IsZero() && now.UnixMilli()-s.endLocked(now) > s.options.Keep.Milliseconds()
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

// endLocked returns when the first segment got its last record. If that is later than now, the clock
// was set back since: the segment is older than the next one that is not.
func (s *Store) endLocked(now time.Time) int64 {
	for _, g := range s.segments {
		if g.last <= now.UnixMilli() {
			return g.last
		}
	}
	return now.UnixMilli()
}
