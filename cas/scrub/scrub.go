package scrub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/pause"
)

const (
	// DefaultEvery is the default period of passes, DefaultRate the default limit of bytes per
	// second.
	DefaultEvery = 7 * 24 * time.Hour
	DefaultRate  = 32 << 20

	// fileCost is the least that a file counts for, in bytes: to open one takes the disk about as
	// long.
	fileCost = 16 << 10
	// keepEvery is how old the kept position may become.
	keepEvery = 10 * time.Second
	// retryAfter is how long a Scrubber waits after a target could not be listed.
	retryAfter = time.Minute
)

// Options are the options of a Scrubber. The zero value works.
type Options struct {
	// Every is the period of passes; 0 is DefaultEvery.
	Every time.Duration
	// Rate limits the bytes read per second; 0 is DefaultRate.
	Rate int64
	// Busy reports whether others need the disk now. It is called often. Nil: they never do.
	Busy func() bool
	// Logger may be nil.
	Logger *zap.Logger
	// Metrics is the registry for the values of Status. Nil: they are not registered.
	Metrics prometheus.Registerer
}

func (o *Options) validate() error {
	if o.Every < 0 || o.Rate < 0 {
		return fmt.Errorf("a scrub cannot read %d bytes in a second, or everything in %s", o.Rate, o.Every)
	}
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	if o.Busy == nil {
		o.Busy = func() bool { return false }
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return nil
}

// A Verdict is the result of a file's check.
type Verdict int

const (
	Passed  Verdict = iota // nothing to read: the file is gone, or was verified since the pass began
	Whole                  // it was read and is right
	Damaged                // it was wrong, or could not be read
)

// ErrUnlisted means that the files of one shard cannot be listed, for a reason that concerns only
// this shard.
var ErrUnlisted = errors.New("the folder cannot be listed")

// A Target is a folder of files in shards. Its methods are called by one goroutine at a time.
type Target interface {
	// Shards returns the names of the existing shards, in any order.
	Shards() ([]string, error)
	// Files returns the names of the files of a shard. After ErrUnlisted the pass continues with
	// other shards, after other errors it retries.
	Files(shard string) ([]string, error)
	// Check reads a file through r and handles damage. It returns an error only if ctx ends.
	Check(ctx context.Context, name string, since time.Time, r *Reader) (Verdict, error)
	// Holds returns the present number of files, and their bytes.
	Holds() (files, bytes int64)
}

// Status is the progress of a Scrubber.
type Status struct {
	Every time.Duration
	Rate  int64
	// Began is when the latest pass began, and Ended when it ended; Ended is zero during a pass.
	Began, Ended time.Time
	// Due is when the current pass would end at its present pace, or else when the next one begins.
	Due time.Time
	// Done is the share of the latest pass that is done, from 0 to 1.
	Done float64
	// Counts of the latest pass: read, and damaged.
	Files, Bytes, Damaged int64
	// LastWhole is when the last pass that could list all files ended; before the first such pass,
	// when the first pass began.
	LastWhole time.Time
	// Since the program's start.
	AllFiles, AllBytes, AllDamaged int64
}

// A Scrubber reads its targets again and again. See the package.
type Scrubber struct {
	path    string
	targets []Target
	options Options
	reader  Reader
	kept    time.Time // when the position was

	mu                         sync.Mutex
	at                         position // guarded by mu
	left, total                float64  // cost of unread files; guarded by mu
	allFiles, allBytes, allBad int64    // guarded by mu
}

// New returns a Scrubber of targets, which keeps its position in the file path. Status may be
// called before Run.
func New(path string, o Options, targets ...Target) (*Scrubber, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Scrubber{path: path, targets: targets, options: o, at: load(path, time.Now())}
	s.reader.pace = s.pace
	if o.Metrics != nil {
		if err := o.Metrics.Register(newMetrics(s)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Status returns the progress of the Scrubber.
func (s *Scrubber) Status() Status {
	pace := s.pace()
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		Every: s.options.Every, Rate: s.options.Rate,
		Began: s.at.Began, Ended: s.at.Ended, LastWhole: s.at.LastWhole,
		Files: s.at.Files, Bytes: s.at.Bytes, Damaged: s.at.Damaged,
		AllFiles: s.allFiles, AllBytes: s.allBytes, AllDamaged: s.allBad,
	}
	switch {
	case !s.at.Ended.IsZero():
		st.Done, st.Due = 1, s.at.Began.Add(s.options.Every)
	case s.total > 0:
		st.Done = min(max(1-s.left/s.total, 0), 1)
		// More than a year is as good as never, and does not overflow.
		st.Due = time.Now().Add(time.Duration(min(s.left/pace, 365*24*3600) * float64(time.Second)))
	}
	return st
}

// Run makes one pass after another until ctx ends.
func (s *Scrubber) Run(ctx context.Context) {
	for {
		s.mu.Lock()
		at := s.at
		s.mu.Unlock()
		if !at.Ended.IsZero() || at.Began.IsZero() {
			if pause.For(ctx, time.Until(at.Began.Add(s.options.Every))) != nil {
				return
			}
			s.begin()
		}
		err := s.pass(ctx)
		if err == nil {
			s.end()
		}
		s.keep(true)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.options.Logger.Warn("cannot scrub the store", zap.Error(err))
			if pause.For(ctx, retryAfter) != nil {
				return
			}
		}
	}
}

func (s *Scrubber) begin() {
	s.mu.Lock()
	now := time.Now()
	s.at = position{Began: now, LastWhole: s.at.LastWhole}
	if s.at.LastWhole.IsZero() {
		s.at.LastWhole = now
	}
	s.mu.Unlock()
	s.keep(true)
}

func (s *Scrubber) end() {
	s.mu.Lock()
	now := time.Now()
	s.at.Ended, s.left = now, 0
	if s.at.Unlisted == 0 {
		s.at.LastWhole = now
	}
	at := s.at
	s.mu.Unlock()
	log := s.options.Logger.Info
	if at.Damaged > 0 {
		log = s.options.Logger.Warn
	}
	log("the store was scrubbed", zap.String("position", s.path), zap.Int64("files", at.Files), zap.Int64("bytes", at.Bytes),
		zap.Int64("damaged", at.Damaged), zap.Duration("took", now.Sub(at.Began)))
}

// A part is a shard of a target.
type part struct {
	target int
	shard  string
}

func (p part) compare(q part) int {
	return cmp.Or(cmp.Compare(p.target, q.target), cmp.Compare(p.shard, q.shard))
}

// parts lists all shards of all targets, in the order in which they are read.
func (s *Scrubber) parts() (all []part, err error) {
	for i, target := range s.targets {
		shards, err := target.Shards()
		if err != nil {
			return nil, fmt.Errorf("list shards: %w", err)
		}
		for _, shard := range shards {
			all = append(all, part{i, shard})
		}
	}
	slices.SortFunc(all, part.compare)
	return all, nil
}

// pass reads the rest of the present pass.
func (s *Scrubber) pass(ctx context.Context) error {
	all, err := s.parts()
	if err != nil {
		return err
	}
	for i, p := range all {
		s.mu.Lock()
		done := p.compare(part{s.at.Target, s.at.Shard}) <= 0
		s.mu.Unlock()
		if done {
			continue
		}
		s.measure(all, i)
		if err := s.readPart(ctx, p); err != nil {
			return err
		}
		s.mu.Lock()
		s.at.Target, s.at.Shard = p.target, p.shard
		s.mu.Unlock()
		s.keep(false)
	}
	return nil
}

// measure returns the amount of data from the part with that index on: shards of one target count
// as equally large, because hashes choose them.
func (s *Scrubber) measure(all []part, from int) {
	var left, total float64
	shards := make([]float64, len(s.targets))
	for _, p := range all {
		shards[p.target]++
	}
	for i, p := range all {
		files, bytes := s.targets[p.target].Holds()
		cost := float64(max(bytes, files*fileCost)) / shards[p.target]
		total += cost
		if i >= from {
			left += cost
		}
	}
	s.mu.Lock()
	s.left, s.total = left, total
	s.mu.Unlock()
}

// readPart reads all files of a shard.
func (s *Scrubber) readPart(ctx context.Context, p part) error {
	target := s.targets[p.target]
	names, err := target.Files(p.shard)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil && !errors.Is(err, ErrUnlisted) {
		return fmt.Errorf("list shard %s: %w", p.shard, err)
	}
	if err != nil {
		s.options.Logger.Warn("cannot list files of the store", zap.String("shard", p.shard), zap.Error(err))
		s.count(Damaged, 0, 0)
		s.mu.Lock()
		s.at.Unlisted++
		s.mu.Unlock()
		return nil
	}
	s.mu.Lock()
	since, first := s.at.Began, s.left
	s.mu.Unlock()
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		s.reader.bytes = 0
		verdict, err := target.Check(ctx, name, since, &s.reader)
		if err != nil {
			return err
		}
		cost := s.reader.settle(verdict)
		s.count(verdict, cost, s.reader.bytes)
		if err := s.reader.rest(ctx, nil); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.left = min(s.left, first)
	s.mu.Unlock()
	return nil
}

// count counts a file that has been dealt with.
func (s *Scrubber) count(v Verdict, cost, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = max(s.left-float64(cost), 0)
	s.at.Bytes += bytes
	s.allBytes += bytes
	if v != Passed {
		s.at.Files++
		s.allFiles++
	}
	if v == Damaged {
		s.at.Damaged++
		s.allBad++
	}
}

// pace is how many bytes may be read in a second now.
func (s *Scrubber) pace() float64 {
	rate := float64(s.options.Rate)
	if !s.options.Busy() {
		return rate
	}
	s.mu.Lock()
	left, end := s.left, s.at.Began.Add(s.options.Every)
	s.mu.Unlock()
	seconds := time.Until(end).Seconds()
	if seconds <= 0 {
		return rate / 2
	}
	return min(max(left/seconds, 1), rate/2)
}
