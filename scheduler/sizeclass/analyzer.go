package sizeclass

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/records/record"
)

// An Action identifies an action for an Analyzer.
type Action struct {
	Instance string
	// Digest is the action's digest. Reduced is the digest of an Action with only the digest of its
	// Command and its platform: actions with the same one share their statistics.
	Digest, Reduced digest.Digest
	// Timeout is the maximum duration of a run: the client's, or the scheduler's default. It must
	// be positive.
	Timeout time.Duration
	kind.Kind
}

// An Analyzer reads and writes records of actions. Its methods may be called concurrently.
type Analyzer struct {
	store   *record.Careful
	options Options

	mu sync.Mutex
	// waiting holds unwritten events, by their record, while another caller writes that record.
	waiting map[record.Key][]event
}

// An event is a change of a record: a run, or the time of a failure.
type event struct {
	run    run
	failed time.Time // not zero: the run is none
}

// maxWaiting bounds the events that wait for the write of one record.
const maxWaiting = 256

// NewAnalyzer returns an Analyzer over s, which the caller closes. It does not ask s.
func NewAnalyzer(s record.Hints, o Options) (*Analyzer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Analyzer{
		store: record.NewCareful(s, record.CarefulOptions{
			Timeout: o.StoreTimeout, Logger: o.Logger,
			Subject: "statistics", Without: "size classes are chosen without them",
		}),
		options: o,
		waiting: map[record.Key][]event{},
	}, nil
}

// Analyze reads the records of the action. It may wait for the store, up to three times; call it
// without a lock.
func (a *Analyzer) Analyze(ctx context.Context, action Action) *Selector {
	if action.Timeout <= 0 {
		panic(fmt.Sprintf("sizeclass: action %s has the timeout %s", action.Digest, action.Timeout))
	}
	s := &Selector{options: &a.options, action: action}
	value, _ := a.store.Get(ctx, action.key(names.StatisticsBucket))
	s.statistics = parseStatistics(value, a.options.History)
	chance := fnv.New64a()
	_, _ = chance.Write(binary.BigEndian.AppendUint64(nil, a.options.Seed))
	_, _ = chance.Write(action.Digest.AppendHash(nil))
	_, _ = chance.Write(value)
	s.draw = uniform(chance.Sum64())
	if !a.options.Plain {
		value, _ = a.store.Get(ctx, action.key(names.RunsBucket))
		s.runs = parseRuns(value)
	}
	s.ordered = len(s.runs) > 0
	if len(s.runs) == 0 {
		s.runs = s.statistics.all()
	}
	if k, ok := action.alike(); ok && !a.options.Plain && len(s.runs) == 0 {
		value, _ = a.store.Get(ctx, k)
		s.kin = parseRuns(value)
	}
	return s
}

// uniform returns a number from 0 to below 1 that depends on all bits of a hash. The steps are
// those of SplitMix64 (Steele, Lea, Flood, 2014), without which FNV's high bits hardly depend on
// the last bytes.
func uniform(hash uint64) float64 {
	hash = (hash ^ hash>>30) * 0xbf58476d1ce4e5b9
	hash = (hash ^ hash>>27) * 0x94d049bb133111eb
	return float64((hash^hash>>31)>>11) / (1 << 53)
}

// A Lesson is the new data about an action, for Analyzer.Learn.
type Lesson struct {
	action Action
	runs   []run
	failed time.Time
}

// Learn writes a Lesson; nil is none. It may wait for the store; call it without a lock. If another
// caller is already writing the same record, Learn leaves the Lesson to that caller.
func (a *Analyzer) Learn(ctx context.Context, l *Lesson) {
	if l == nil {
		return
	}
	limit := a.options.History
	var events []event
	for _, r := range l.runs {
		r.action = l.action.fingerprint()
		events = append(events, event{run: r})
	}
	ran := events
	if !l.failed.IsZero() {
		events = append(slices.Clip(events), event{failed: l.failed})
	}
	a.update(ctx, l.action.key(names.StatisticsBucket), events, func(value []byte, events []event) ([]byte, error) {
		return updateStatistics(value, events, limit)
	})
	if len(ran) == 0 {
		return
	}
	record := func(value []byte, events []event) ([]byte, error) {
		return marshalRuns(addRuns(parseRuns(value), events, window(limit)))
	}
	a.update(ctx, l.action.key(names.RunsBucket), ran, record)
	if k, ok := l.action.alike(); ok {
		a.update(ctx, k, ran, func(value []byte, events []event) ([]byte, error) {
			list := parseRuns(value)
			for _, e := range events {
				// Only the last run of each action and class stays: no action evicts the others.
				list = slices.DeleteFunc(list, func(r run) bool {
					return r.action == e.run.action && r.class == e.run.class
				})
			}
			return marshalRuns(addRuns(list, events, window(limit)))
		})
	}
}

// addRuns adds runs and keeps the last of each class, at most limit.
func addRuns(list []run, events []event, limit int) []run {
	for _, e := range events {
		list = append(list, e.run)
	}
	count := map[uint32]int{}
	for i := len(list) - 1; i >= 0; i-- {
		if count[list[i].class]++; count[list[i].class] > limit {
			list = slices.Delete(list, i, i+1)
		}
	}
	return last(list, maxRuns)
}

// maxRuns bounds a record of runs, on however many classes.
const maxRuns = 8 * maxHistory

// update applies events to a record. change returns the new value for the old one.
func (a *Analyzer) update(
	ctx context.Context, k record.Key, events []event, change func([]byte, []event) ([]byte, error),
) {
	a.mu.Lock()
	waiting, busy := a.waiting[k]
	a.waiting[k] = last(append(waiting, events...), maxWaiting)
	a.mu.Unlock()
	if busy {
		return
	}
	for {
		a.mu.Lock()
		events := a.waiting[k]
		if len(events) == 0 {
			delete(a.waiting, k)
			a.mu.Unlock()
			return
		}
		a.waiting[k] = nil
		a.mu.Unlock()
		old, ok := a.store.Get(ctx, k)
		if !ok {
			continue // keep the old value rather than lose it for a new one
		}
		value, err := change(old, events)
		if err != nil {
			a.options.Logger.Error("encode record of runs", zap.String("bucket", k.Bucket), zap.Error(err))
			continue
		}
		a.store.Put(ctx, k, value)
	}
}

func (a Action) key(bucket string) record.Key {
	return record.Key{Bucket: bucket, Instance: a.Instance, Digest: a.Reduced}
}

// alike is the key of similar actions; it is false if too little is known of a.
func (a Action) alike() (record.Key, bool) {
	d, ok := a.Kind.Digest(a.Reduced.Function())
	return record.Key{Bucket: names.KindsBucket, Instance: a.Instance, Digest: d}, ok
}

// fingerprint distinguishes a from similar actions.
func (a Action) fingerprint() uint64 {
	return binary.BigEndian.Uint64(a.Reduced.AppendHash(nil))
}
