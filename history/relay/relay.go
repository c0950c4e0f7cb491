package relay

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
)

const (
	// The shared data has slots slots of slotBytes each. With their keys they take less than one
	// bucket of a store, even if the bucket is spread over the nodes of a cluster.
	slots, slotBytes = 1536, 64 << 10
	// blockBytes is the uncompressed size of a block.
	blockBytes = 64 << 10
	// maxWaiting limits the bytes that wait to be published.
	maxWaiting = 4 << 20
	// every is the interval of publishing and of copying.
	every = time.Second
	// timeout limits a call of the store, and the whole of Close.
	timeout = time.Second
	// maxOrigins limits the origins whose last block is known.
	maxOrigins = 64
	// maxBlock limits the uncompressed size of a block from the store.
	maxBlock = 1 << 20
)

// Options are the options of a Relay. All are required.
type Options struct {
	// Shared is the common store. The caller closes it.
	Shared record.Hints
	// Name is the common name of the schedulers that replace each other.
	Name string
	// May reports whether this scheduler may publish. Two at the same time would overwrite each
	// other's records.
	May func() bool
	// File is the path of the file with this Relay's position, in the folder of its records.
	File   string
	Logger *zap.Logger
}

// A Relay shares the records of one scheduler with others.
type Relay struct {
	options Options
	shared  *record.Careful
	encoder *zstd.Encoder
	decoder *zstd.Decoder

	origin uint64            // identifies this data folder
	last   uint64            // number of its last block
	at     uint64            // the slot up to which this Relay has copied
	known  map[uint64]uint64 // by origin, the number of the last copied block
	past   uint64            // the largest last block of origins that are no longer in known
	hasAll bool              // the last Pull copied everything that there was

	// slot is the slot that is being published; nil until the last slot has been read.
	slot      []byte
	number    uint64 // of slot
	isChanged bool   // the store does not have all of slot yet

	mu      sync.Mutex
	waiting []byte // records, each preceded by its length
	isFull  bool   // records were lost since the queue was last empty, which was logged
}

// New returns a Relay.
func New(o Options) (*Relay, error) {
	r := &Relay{options: o, shared: record.NewCareful(o.Shared, record.CarefulOptions{
		Timeout: timeout, Logger: o.Logger, Subject: "records for other schedulers", Without: "other schedulers get no records",
	})}
	var err error
	r.encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(128<<10), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // blocks have a checksum
	if err == nil {
		r.decoder, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	}
	if err != nil {
		return nil, fmt.Errorf("records for other schedulers: %w", err)
	}
	return r, r.load()
}

// Add queues a record to publish. item is the encoded record, preceded by its length
// (history.Options.Added).
func (r *Relay) Add(item []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting)+len(item) <= maxWaiting {
		r.waiting = append(r.waiting, item...)
		return
	}
	if !r.isFull {
		r.isFull = true
		r.options.Logger.Warn("records do not reach other schedulers: their store does not keep up")
	}
}

// Run publishes new records until ctx ends. First it copies to into the remaining records that
// others have published; if into is nil, it copies nothing.
func (r *Relay) Run(ctx context.Context, into *history.Store) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			if into != nil && !r.hasAll {
				r.Pull(ctx, into)
			}
			r.Publish(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// Follow copies the records that another scheduler publishes, until ctx ends.
func (r *Relay) Follow(ctx context.Context, into *history.Store) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		r.Pull(ctx, into)
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Close publishes the remaining records, for at most a second, if this Relay still may. No other
// method may run, or be called later.
func (r *Relay) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r.Publish(ctx)
	r.decoder.Close()
}

// key returns the key of a slot. The key of slot 0 has the number of the last slot.
func (r *Relay) key(slot uint64) record.Key {
	if slot > 0 {
		slot = 1 + slot%slots
	}
	return record.Key{Bucket: names.HistoryBucket, Digest: digest.Of(digest.SHA256, fmt.Appendf(nil, "%s/%d", r.options.Name, slot))}
}

// readHead returns the number of the last slot; 0 if there is none. It returns false if the store
// does not answer.
func (r *Relay) readHead(ctx context.Context) (head uint64, ok bool) {
	value, ok := r.shared.Get(ctx, r.key(0))
	if len(value) == slotHeader {
		head = binary.LittleEndian.Uint64(value)
	}
	return head, ok
}

// load reads the position from the file. Without a file, the folder counts as new.
func (r *Relay) load() error {
	text, err := os.ReadFile(r.options.File)
	if err == nil {
		err = r.parse(string(text))
	}
	if err == nil && r.origin != 0 {
		return nil
	}
	var random [8]byte
	_, _ = rand.Read(random[:])
	r.origin, r.last, r.at, r.past, r.known = binary.LittleEndian.Uint64(random[:])|1, 0, 0, 0, map[uint64]uint64{}
	return r.save()
}

// The file has a line for this folder, one for each known origin of blocks, and one with folder 0
// for origins that are no longer known.
const (
	fileFormat   = "forerunner relay 2: folder %d has published up to block %d, and has all up to slot %d\n"
	originFormat = "folder %d up to block %d\n"
)

func (r *Relay) parse(text string) error {
	r.known = map[uint64]uint64{}
	first, rest, _ := strings.Cut(text, "\n")
	if _, err := fmt.Sscanf(first+"\n", fileFormat, &r.origin, &r.last, &r.at); err != nil {
		return err
	}
	for line := range strings.Lines(rest) {
		var origin, number uint64
		if _, err := fmt.Sscanf(line, originFormat, &origin, &number); err != nil {
			return err
		}
		r.known[origin] = number
	}
	r.past = r.known[0]
	delete(r.known, 0)
	return nil
}

// save writes the position to the file.
func (r *Relay) save() error {
	if err := os.MkdirAll(filepath.Dir(r.options.File), 0o700); err != nil {
		return err
	}
	text := fmt.Appendf(nil, fileFormat, r.origin, r.last, r.at)
	if r.past > 0 {
		text = fmt.Appendf(text, originFormat, 0, r.past)
	}
	for _, origin := range slices.Sorted(maps.Keys(r.known)) {
		text = fmt.Appendf(text, originFormat, origin, r.known[origin])
	}
	next := r.options.File + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(next, r.options.File)
}
