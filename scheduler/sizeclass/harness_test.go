package sizeclass

import (
	"bytes"
	"context"
	"encoding/binary"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/records/record"
)

// mapStore is a Store in memory.
type mapStore struct {
	mu      sync.Mutex
	records map[record.Key][]byte
}

func newMapStore() *mapStore { return &mapStore{records: map[record.Key][]byte{}} }

func (s *mapStore) Get(_ context.Context, k record.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value, ok := s.records[k]; ok {
		return bytes.Clone(value), nil
	}
	return nil, record.ErrNotFound
}

func (s *mapStore) Put(_ context.Context, k record.Key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[k] = bytes.Clone(value)
	return nil
}

func (s *mapStore) snapshot() map[record.Key][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.records)
}

// testTime is when the tests begin.
var testTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// A farm runs actions one after another on workers that are always free.
type farm struct {
	*testing.T
	store    *mapStore
	analyzer *Analyzer
	options  Options
	classes  []uint32
	now      time.Time
	runs     int
}

func newFarm(t *testing.T, o Options, classes ...uint32) *farm {
	f := &farm{T: t, store: newMapStore(), options: o, classes: classes, now: testTime}
	f.restart()
	return f
}

// restart forgets everything but the store.
func (f *farm) restart() {
	f.Helper()
	a, err := NewAnalyzer(f.store, f.options)
	if err != nil {
		f.Fatal(err)
	}
	f.analyzer = a
}

func (f *farm) conditions() Conditions {
	c := Conditions{Now: f.now}
	for _, class := range f.classes {
		c.Classes = append(c.Classes, Class{Size: class})
	}
	return c
}

// testAction returns one of actions that differ.
func testAction(n int) Action {
	id := binary.BigEndian.AppendUint64(nil, uint64(n))
	return Action{
		Digest: digest.Of(digest.SHA256, append(id, 'x')), Reduced: digest.Of(digest.SHA256, id),
		Timeout: time.Hour,
	}
}

// variant returns a with other inputs.
func (a Action) variant(n int) Action {
	a.Digest = digest.Of(digest.SHA256, binary.BigEndian.AppendUint64(a.Reduced.AppendHash(nil), uint64(n)))
	return a
}

// A program is the work of an action: CPU seconds, the part of them that runs in parallel on all
// CPUs, and memory. Workers of class s have s CPUs and s GiB.
type program struct {
	seconds, parallel float64
	memory            float64 // GiB
	broken            bool    // it fails wherever it runs
	blind             bool    // the worker tells the duration alone
}

func (p program) on(class uint32, timeout time.Duration) (Run, Outcome) {
	r := Run{CPUs: float64(class), MemoryLimitBytes: int64(class) << 30}
	r.Duration = time.Duration((p.seconds - p.parallel + p.parallel/float64(class)) * 1e9)
	r.CPU = time.Duration(p.seconds * 1e9)
	r.PeakMemoryBytes = min(int64(p.memory*(1<<30)), r.MemoryLimitBytes)
	outcome := Succeeded
	switch {
	case p.memory > float64(class):
		outcome = OutOfMemory
	case p.broken:
		outcome = Failed
	case r.Duration > timeout:
		outcome, r.Duration = TimedOut, timeout
	}
	if p.blind {
		r = Run{Duration: r.Duration}
	}
	return r, outcome
}

// run runs an action to its end and returns the classes that it ran on.
func (f *farm) run(a Action, p program) (on []uint32, last Choice, outcome Outcome) {
	f.Helper()
	f.runs++
	choice, learner := f.analyzer.Analyze(f.Context(), a.variant(f.runs)).Select(f.conditions())
	for {
		on = append(on, choice.Class)
		r, outcome := p.on(choice.Class, choice.Timeout)
		if outcome == Succeeded {
			f.analyzer.Learn(f.Context(), learner.Succeeded(r))
			return on, choice, outcome
		}
		verdict := learner.Failed(Failure{Now: f.now, Outcome: outcome, Run: r, Largest: f.classes[len(f.classes)-1]})
		if verdict.Retry == nil {
			f.analyzer.Learn(f.Context(), verdict.Lesson)
			return on, choice, outcome
		}
		learner, choice = verdict.Retry, verdict.Retry.Choice()
	}
}

// runs runs an action n times and counts how often it ran on each class.
func (f *farm) times(n int, a Action, p program) map[uint32]int {
	f.Helper()
	count := map[uint32]int{}
	for range n {
		on, _, _ := f.run(a, p)
		for _, class := range on {
			count[class]++
		}
	}
	return count
}

func plain() Options { return Options{Plain: true} }
