package relay

import (
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/history"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/records/record"
)

// A shared is a store that all schedulers share. It may be unavailable.
type shared struct {
	values map[record.Key][]byte
	isAway atomic.Bool
}

func newShared() *shared { return &shared{values: map[record.Key][]byte{}} }

func (s *shared) Get(_ context.Context, k record.Key) ([]byte, error) {
	if s.isAway.Load() {
		return nil, errors.New("away")
	}
	if value, known := s.values[k]; known {
		return append([]byte{}, value...), nil
	}
	return nil, record.ErrNotFound
}

func (s *shared) Put(_ context.Context, k record.Key, value []byte) error {
	if s.isAway.Load() {
		return errors.New("away")
	}
	s.values[k] = append([]byte{}, value...)
	return nil
}

// A scheduler has records in a folder of its own.
type scheduler struct {
	*testing.T
	shared *shared
	folder string
	relay  *Relay
	store  *history.Store
	isPast bool // it may no longer publish
}

func newScheduler(t *testing.T, all *shared) *scheduler {
	s := &scheduler{T: t, shared: all, folder: t.TempDir()}
	s.start()
	t.Cleanup(s.end)
	return s
}

func (s *scheduler) start() {
	s.Helper()
	var err error
	if s.relay, err = New(Options{
		Shared: s.shared, Name: "farm", May: func() bool { return !s.isPast }, File: filepath.Join(s.folder, "relay"), Logger: zap.NewNop(),
	}); err != nil {
		s.Fatal(err)
	}
	if s.store, err = history.Open(s.folder, history.Options{Added: s.relay.Add}); err != nil {
		s.Fatal(err)
	}
}

func (s *scheduler) end() {
	if err := s.store.Close(); err != nil {
		s.Error(err)
	}
	s.relay.Close()
}

func (s *scheduler) restart() {
	s.Helper()
	s.end()
	s.start()
}

// add adds a record with a number and that many incompressible bytes.
func (s *scheduler) add(number, bytes int) {
	s.Helper()
	random := make([]byte, bytes)
	_, _ = cryptorand.Read(random)
	if !s.store.Add(&historypb.Record{
		Operation: fmt.Sprintf("operations/%016x", number), Target: fmt.Sprint("//a:", number), Ended: timestamppb.Now(),
		Stdout: &historypb.Stream{Raw: random},
	}) {
		s.Fatal("there is no room")
	}
}

func (s *scheduler) publish() { s.Helper(); s.want(s.relay.Publish(s.Context()), "publish") }

func (s *scheduler) pull() { s.Helper(); s.want(s.relay.Pull(s.Context(), s.store), "pull") }

func (s *scheduler) want(ok bool, what string) {
	s.Helper()
	if !ok {
		s.Errorf("%s: not all is done", what)
	}
}

// counts returns how often the folder has each number.
func (s *scheduler) counts() map[int]int {
	s.Helper()
	counts := map[int]int{}
	for q := (history.Query{Limit: 1000}); ; {
		found, next, err := s.store.Find(s.Context(), q)
		if err != nil {
			s.Fatal(err)
		}
		for _, r := range found {
			var number int
			_, _ = fmt.Sscanf(r.GetTarget(), "//a:%d", &number)
			counts[number]++
		}
		if q.After = next; next == "" {
			return counts
		}
	}
}

// expect checks that the folder has the records from..to, each once.
func (s *scheduler) expect(from, to int) {
	s.Helper()
	counts := s.counts()
	for i := from; i <= to; i++ {
		if counts[i] != 1 {
			s.Errorf("record %d is here %d times", i, counts[i])
		}
	}
	if len(counts) != to-from+1 {
		s.Errorf("%d records are here, want %d to %d", len(counts), from, to)
	}
}

// TestTakeOver checks that the second scheduler gets the records of the first once, whichever
// restarts, and that the first gets new ones when it follows.
func TestTakeOver(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	first.pull()
	first.add(1, 0)
	first.publish()
	second.pull()
	second.expect(1, 1)
	for i := 2; i <= 100; i++ { // fills several slots
		first.add(i, 10_000)
		if i%7 == 0 {
			first.publish()
			second.pull()
		}
	}
	first.restart() // publishes the remaining records
	second.restart()
	second.pull()
	second.expect(1, 100)
	first.pull()
	first.expect(1, 100)
	second.add(101, 0)
	second.restart()
	first.pull()
	first.expect(1, 101)
	newcomer := newScheduler(t, all)
	newcomer.pull()
	newcomer.expect(1, 101)
}

// TestInAnyOrder takes over, restarts and follows at random. No record may be missing or stored
// twice.
func TestInAnyOrder(t *testing.T) {
	all, random := newShared(), rand.New(rand.NewPCG(1, 2))
	var farm []*scheduler
	for range 3 {
		farm = append(farm, newScheduler(t, all))
	}
	serves, number := farm[0], 0
	for range 300 {
		s := farm[random.IntN(len(farm))]
		switch random.IntN(6) {
		case 0:
			s.restart()
			if s == serves {
				s.pull()
			}
		case 1: // the other one takes over
			serves.restart()
			serves = s
			s.pull()
		case 2, 3:
			number++
			serves.add(number, random.IntN(20_000))
		case 4:
			serves.publish()
		case 5:
			if s != serves {
				s.pull()
			}
		}
	}
	serves.publish()
	for _, s := range farm {
		s.pull()
		s.expect(1, number)
	}
}

// TestAway has the store unavailable. Records that were added meanwhile arrive later, up to a
// limit.
func TestAway(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	all.isAway.Store(true)
	for i := range 200 {
		first.add(i, 60_000)
		first.store.Flush()
	}
	if first.relay.Publish(t.Context()) || second.relay.Pull(t.Context(), second.store) {
		t.Error("all is done without a store")
	}
	if n := len(first.relay.waiting); n > maxWaiting || n < maxWaiting-maxItem {
		t.Errorf("%d bytes wait", n)
	}
	all.isAway.Store(false)
	for _, r := range []*Relay{first.relay, second.relay} { // do not wait until the pause after a failure ends
		r.shared = record.NewCareful(all, record.CarefulOptions{Timeout: time.Second, Logger: zap.NewNop()})
	}
	first.publish()
	second.pull()
	if n := len(second.counts()); n < 50 || n == 200 {
		t.Errorf("%d records have come", n)
	}
	first.add(200, 0)
	first.publish()
	second.pull()
	if second.counts()[200] != 1 {
		t.Error("what came then is missing")
	}
}

// maxItem is the maximum size of a record.
const maxItem = history.MaxRecordBytes

// TestWrittenOver has a scheduler that is away until all slots have been overwritten.
func TestWrittenOver(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	first.add(0, 0)
	first.publish()
	second.pull()
	const many = slots + 100
	for i := 1; i <= many; i++ {
		first.add(i, 50_000) // one slot each
		if i%20 == 0 {
			first.store.Flush()
			first.publish()
		}
	}
	first.publish()
	second.pull()
	counts := second.counts()
	if n := len(counts); n != 1+slots || counts[many] != 1 {
		t.Errorf("%d records are here, the last one %d times", n, counts[many])
	}
	if len(all.values) != 1+slots {
		t.Errorf("%d values are shared", len(all.values))
	}
}

// TestDamage skips damaged blocks and copies later ones.
func TestDamage(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	for i := range 3 {
		first.add(i, 60_000)
		first.publish()
	}
	key := first.relay.key(2)
	all.values[key][len(all.values[key])/2] ^= 1
	second.pull()
	if counts := second.counts(); len(counts) != 2 || counts[1] != 0 {
		t.Errorf("the records are %v", counts)
	}
	clear(all.values) // the store loses everything
	first.restart()
	second.pull()
	first.add(3, 0)
	first.publish()
	second.pull()
	if counts := second.counts(); len(counts) != 3 || counts[3] != 1 {
		t.Errorf("the records are %v", counts)
	}
}

// TestDamagedLast damages the last slot before a publisher continues. Later records must not be
// missed.
func TestDamagedLast(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	first.add(1, 1000)
	first.publish()
	key := first.relay.key(1)
	all.values[key][len(all.values[key])/2] ^= 1
	first.restart()
	first.add(2, 0)
	first.publish()
	second.pull()
	second.expect(2, 2)
}

// TestClockSetBack has blocks from before a restart with later times than those after it.
func TestClockSetBack(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	first.relay.last = uint64(time.Now().Add(time.Hour).UnixNano())
	for i := range 3 {
		first.add(i, 0)
		first.publish()
		second.pull()
		first.restart()
	}
	second.expect(0, 2)
}

// TestTakenOverLater has the store unavailable when a scheduler begins to publish. The records that
// others had published must arrive once it is back, although this scheduler begins slots of its
// own.
func TestTakenOverLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newShared()
		first, second := newScheduler(t, all), newScheduler(t, all)
		for i := range 5 {
			first.add(i, 60_000)
			first.publish()
		}
		all.isAway.Store(true)
		if second.relay.Pull(t.Context(), second.store) {
			t.Error("all is here without a store")
		}
		all.isAway.Store(false)
		time.Sleep(time.Minute) // the pause after a failure ends
		for i := 5; i < 10; i++ {
			second.add(i, 60_000)
			second.publish()
		}
		ctx, stop := context.WithTimeout(t.Context(), 3*every)
		defer stop()
		second.relay.Run(ctx, second.store)
		second.expect(0, 9)
		second.add(10, 0)
		second.publish()
		second.restart()
		second.pull()
		second.expect(0, 10)
		first.pull()
		first.expect(0, 10)
	})
}

// TestLost has the store lose data while a scheduler publishes. No other records may be missing,
// and none may be stored twice.
func TestLost(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	first.pull()
	number := 0
	step := func(bytes int) {
		t.Helper()
		number++
		first.add(number, bytes)
		first.publish()
		second.pull()
		second.expect(1, number)
	}
	for range 100 { // fills two slots
		step(1000)
	}
	last := all.values[first.relay.key(0)]
	delete(all.values, first.relay.key(0))
	second.pull()
	second.restart() // it remembers its position
	step(0)
	all.values[first.relay.key(0)] = []byte{1, 0, 0, 0, 0, 0, 0, 0} // written late, by an earlier publisher
	second.pull()
	step(0)
	clear(all.values)
	second.pull()
	step(0)
	delete(all.values, first.relay.key(0))
	first.restart()
	first.pull()
	step(0)
	if now := all.values[first.relay.key(0)]; string(now) != string(last) {
		t.Errorf("the last slot is %d, was %d", now, last)
	}
	clear(all.values)
	first.restart()
	first.pull()
	step(60_000)      // exceeds the earlier content of that slot
	clear(all.values) // then a new scheduler begins, with a shorter slot
	third := newScheduler(t, all)
	third.add(number+1, 0)
	third.publish()
	second.pull()
	second.expect(1, number+1)
	first.pull()
	first.expect(1, number+1)
}

// state returns a copy of the store's content, for restore.
func (s *shared) state() map[record.Key][]byte { return maps.Clone(s.values) }

// restore replaces the store's content, as if a lagging replica replaced the store.
func (s *shared) restore(state map[record.Key][]byte) { s.values = maps.Clone(state) }

// TestStale has a lagging replica replace the store, in the middle of a slot and before it began,
// while one scheduler publishes and when another takes over. No record may be stored twice, and no
// later record may be missed.
func TestStale(t *testing.T) {
	for _, bytes := range []int{100, 30_000} {
		for _, takesOver := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d bytes, takes over: %t", bytes, takesOver), func(t *testing.T) {
				all := newShared()
				first, second, third := newScheduler(t, all), newScheduler(t, all), newScheduler(t, all)
				add := func(s *scheduler, from, to int) {
					for i := from; i <= to; i++ {
						s.add(i, bytes)
						s.publish()
					}
				}
				add(first, 1, 5)
				stale := all.state()
				add(first, 6, 15)
				second.pull()
				third.pull()
				all.restore(stale)
				second.pull()
				third.pull()
				third.restart()
				third.pull()
				serves := first
				if takesOver {
					first.isPast, serves = true, second
				}
				add(serves, 16, 40)
				second.pull()
				third.pull()
				second.expect(1, 40)
				third.expect(1, 40)
			})
		}
	}
}

// TestManyOrigins has more folders publish, in one slot, than maxOrigins. Their records must arrive
// once.
func TestManyOrigins(t *testing.T) {
	all := newShared()
	second := newScheduler(t, all)
	for i := range maxOrigins + 10 {
		s := newScheduler(t, all)
		s.add(i, 0)
		s.publish()
		second.pull()
	}
	second.restart()
	second.pull()
	second.expect(0, maxOrigins+9)
	if n := len(second.relay.known); n != maxOrigins {
		t.Errorf("%d folders are known", n)
	}
}

// TestTurnHasEnded checks that a scheduler that may no longer publish writes nothing.
func TestTurnHasEnded(t *testing.T) {
	all := newShared()
	first, second := newScheduler(t, all), newScheduler(t, all)
	first.add(1, 0)
	first.publish()
	second.pull()
	first.add(2, 0)
	first.store.Flush()
	first.isPast = true
	second.add(3, 0)
	second.publish()
	if first.relay.Publish(t.Context()) {
		t.Error("it publishes")
	}
	first.restart()
	third := newScheduler(t, all)
	third.pull()
	if counts := third.counts(); len(counts) != 2 || counts[1] != 1 || counts[3] != 1 {
		t.Errorf("the records are %v", counts)
	}
}

// FuzzSlot reads arbitrary slots.
func FuzzSlot(f *testing.F) {
	dir := f.TempDir()
	r, err := New(Options{Shared: newShared(), Name: "farm", May: func() bool { return true }, File: filepath.Join(dir, "relay"), Logger: zap.NewNop()})
	if err != nil {
		f.Fatal(err)
	}
	store, err := history.Open("", history.Options{})
	if err != nil {
		f.Fatal(err)
	}
	r.begin(1)
	r.origin++
	block := r.pack([]byte{1, 0, 0, 0, 0})
	r.origin--
	f.Add(append(r.slot, block...))
	f.Fuzz(func(t *testing.T, slot []byte) {
		r.unpack(slot, store)
		if r.unpack(slot, store) && len(slot) < slotHeader+2*blockHeader {
			t.Error("one block is new twice")
		}
		if n := len(r.known); n > maxOrigins {
			t.Errorf("%d origins are known", n)
		}
	})
}
