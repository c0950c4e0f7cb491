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
	// slots, of slotBytes each, are all that is shared. With their keys they are less than a store
	// has for one bucket, also if that is spread over the nodes of a cluster.
	slots, slotBytes = 1536, 64 << 10
	// blockBytes is how much of records, before it is compressed, makes a block.
	blockBytes = 64 << 10
	// maxWaiting bounds what waits to be published.
	maxWaiting = 4 << 20
	// every is how often records are published, and taken over.
	every = time.Second
	// timeout bounds a call of the store, and all of the last ones.
	timeout = time.Second
	// maxOrigins bounds those of whose blocks the last one is known.
	maxOrigins = 64
	// maxBlock bounds what a block has when it is no longer compressed.
	maxBlock = 1 << 20
)

// Options are the options of a Relay. All are required.
type Options struct {
	// Shared is the common store, which the caller closes.
	Shared record.Hints
	// Name is the common name of schedulers that replace each other.
	Name string
	// May reports whether this one may publish: two at the same time would overwrite each other's
	// records.
	May func() bool
	// File stores the progress of this one, in the folder of its records.
	File   string
	Logger *zap.Logger
}

// A Relay shares the records of one scheduler.
type Relay struct {
	options Options
	shared  *record.Careful
	encoder *zstd.Encoder
	decoder *zstd.Decoder

	origin uint64            // of this data folder
	last   uint64            // number of its last block
	at     uint64            // the slot up to which what others have published was taken over
	known  map[uint64]uint64 // by origin, the number of the last block that was taken over
	past   uint64            // the largest such number of origins that are no longer in known
	hasAll bool              // the last Pull took over all that there was

	// What is published goes to a slot; nil: that of the last one was not read yet.
	slot      []byte
	number    uint64 // of slot
	isChanged bool   // the store does not have all of slot

	mu      sync.Mutex
	waiting []byte // records, each with its length before it
	isFull  bool   // some were lost since all that waited was published, which was logged
}

// New returns a Relay.
func New(o Options) (*Relay, error) {
	r := &Relay{options: o, shared: record.NewCareful(o.Shared, record.CarefulOptions{
		Timeout: timeout, Logger: o.Logger, Subject: "records for other schedulers", Without: "they go on",
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

// Add publishes a record, which is preceded by its length (history.Options.Added).
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

// Run publishes new records until ctx ends. First it copies the remaining records that others have
// published; nil: it does not.
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

// Follow copies the records that another one publishes until ctx ends.
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

// Close publishes the remaining records, for at most a second, if it still may. Nothing else may be
// running, or be called any more.
func (r *Relay) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r.Publish(ctx)
	r.decoder.Close()
}

// key is of a slot; 0 has the number of the last one.
func (r *Relay) key(slot uint64) record.Key {
	if slot > 0 {
		slot = 1 + slot%slots
	}
	return record.Key{Bucket: names.HistoryBucket, Digest: digest.Of(digest.SHA256, fmt.Appendf(nil, "%s/%d", r.options.Name, slot))}
}

// readHead returns the number of the last slot, 0 if there is none; false: the store does not
// answer.
func (r *Relay) readHead(ctx context.Context) (head uint64, ok bool) {
	value, ok := r.shared.Get(ctx, r.key(0))
	if len(value) == slotHeader {
		head = binary.LittleEndian.Uint64(value)
	}
	return head, ok
}

// load reads how far this one has got. A folder of which that is not known is a new one.
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

// The file has a line for this folder, one for each known origin of blocks, and one of folder 0 for
// those that are no longer known.
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

// save notes how far this one has got.
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
