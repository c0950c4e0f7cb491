package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/worker/health/diskquota"
)

const (
	// examineInterval is how often a healthy worker is examined.
	examineInterval = 30 * time.Second
	// A resting worker is examined again after leastPause, then after twice as long, up to
	// mostPause.
	leastPause, mostPause = time.Second, time.Minute
	// commitTime is how long a file system may take to count removed files.
	commitTime = time.Second
)

// ErrUnfit: an action failed because its worker could not run it; another worker can.
var ErrUnfit = errors.New("this worker cannot run actions")

// A Monitor watches one worker. Its methods may be called concurrently.
type Monitor struct {
	dir    string
	store  *disk.Store // on the same disk, whose blobs are evicted; nil: it is on another
	quotas *diskquota.Quotas
	checks []Check
	log    *zap.Logger

	mu sync.Mutex
	// shortage, refusal and fault are why the worker rests: its disk has no room, an invisible
	// quota refused a check's write, or a check failed. Guarded by mu, as all below.
	shortage, refusal, fault error
	// shortages, which refusals are, too, and faults count how often each began.
	shortages, faults int
	// misses counts how often the disk may have been full without a shortage; lookout knows that.
	misses  int
	lookout lookout
	// committed is when the file system was last asked to count removed files.
	committed time.Time
	// fit is closed when the worker can work again; nil: it can.
	fit chan struct{}
	// calls ends calls for work when the worker begins to rest.
	calls map[*context.CancelCauseFunc]struct{}
	// under is the examination in progress; nil: none.
	under *examination
	// due is when the next one begins, backoff how long the worker rests if it finds a fault.
	due     time.Time
	backoff backoff
}

// New returns a Monitor that watches the disk of the folder dir, which it makes, with the quotas of
// owners, and runs checks. It evicts unused blobs of store if that is on the same disk.
func New(dir string, store *disk.Store, owners []folder.Owner, checks []Check, log *zap.Logger) (*Monitor, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	m := &Monitor{
		dir: dir, log: log, checks: append([]Check{{"work folder", func() error { return folder.Writable(dir) }}}, checks...),
		calls: map[*context.CancelCauseFunc]struct{}{}, due: time.Now().Add(examineInterval), quotas: diskquota.New(dir, owners),
	}
	m.quotas.Warn(log)
	var own, stores unix.Stat_t
	if err := errors.Join(unix.Stat(dir, &own), unix.Stat(store.Dir(), &stores)); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	if own.Dev == stores.Dev {
		m.store = store
	}
	return m, nil
}

// Watch measures the disk and examines the worker again and again until ctx ends.
func (m *Monitor) Watch(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		timer.Reset(m.look())
		if m.examinationDue(time.Now()) {
			m.begin()
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// look measures the disk now, and returns when to measure again. If it is full, unused blobs are
// evicted, which does not help on a read-only one. Examinations handle a disk that cannot be
// measured.
func (m *Monitor) look() (next time.Duration) {
	now, err := m.measure()
	if m.evict(now) {
		now, err = m.measure()
	}
	if err != nil {
		return mostLook
	}
	shortage := now.shortage(m.dir)
	m.learn(func() { m.shortage = shortage })
	if shortage != nil { // all waiting calls know it
		return mostLook
	}
	return NextLook(now.lasts)
}

// evict evicts unused blobs for the present shortage, and reports whether there were any. If the
// file system counts removed files late, it first waits whether earlier removals are enough.
func (m *Monitor) evict(now space) bool {
	if now.late && !m.hasCommitted() {
		return false
	}
	return now.yields > 0 && m.store != nil && m.store.Evict(now.yields) > 0
}

// hasCommitted reports whether the file system has counted the files that were removed before its
// last call, and makes it count the present and future ones.
func (m *Monitor) hasCommitted() bool {
	m.mu.Lock()
	since := time.Since(m.committed)
	if since >= commitTime {
		m.committed = time.Now()
	}
	m.mu.Unlock()
	if since < commitTime {
		return false
	}
	m.quotas.Commit()
	return since < 2*commitTime
}

// measure measures the disk, and takes down whether writes to it may have failed although there is
// room again, or will be.
func (m *Monitor) measure() (space, error) {
	began := time.Now()
	now, err := measure(m.dir, m.quotas)
	if err != nil {
		return now, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lookout.sees(began, time.Now(), now) || now.scarce {
		m.misses++
	}
	return now, nil
}

// learn sets why the worker rests, and ends calls for work when it begins to.
func (m *Monitor) learn(set func()) {
	for _, end := range m.change(set) {
		(*end)(ErrUnfit)
	}
}

func (m *Monitor) change(set func()) (ends []*context.CancelCauseFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shortage, fault := m.short(), m.fault
	set()
	if shortage == nil && m.short() != nil {
		m.shortages++
	}
	if fault == nil && m.fault != nil {
		m.faults++
	}
	rests := m.reason() != nil
	switch {
	case rests && m.fit == nil:
		m.fit = make(chan struct{})
		m.log.Warn("the worker rests: it takes no action until it can run one", zap.NamedError("because", m.reason()))
		return slices.Collect(maps.Keys(m.calls))
	case !rests && m.fit != nil:
		close(m.fit)
		m.fit = nil
		m.log.Info("the worker can run actions again")
	}
	return nil
}

// short and reason are called with mu held.
func (m *Monitor) short() error  { return cmp.Or(m.shortage, m.refusal) }
func (m *Monitor) reason() error { return errors.Join(m.fault, m.short()) }

// Reason returns why the worker takes no work; nil: it does.
func (m *Monitor) Reason() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.reason()
}

// Rests returns a channel that is closed when the worker can work again; nil if it can now.
func (m *Monitor) Rests() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fit
}

// Calling returns a context for a call for work. It ends, with ErrUnfit as its cause, when the
// worker must stop taking work. The caller calls done.
func (m *Monitor) Calling(ctx context.Context) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fit != nil {
		end(ErrUnfit)
	} else {
		m.calls[&end] = struct{}{}
	}
	return ctx, func() {
		m.mu.Lock()
		delete(m.calls, &end)
		m.mu.Unlock()
		end(nil)
	}
}

// A Period records the worker's faults since the start of an action. The zero Period has none.
type Period struct {
	m                 *Monitor
	free              int64
	short, faulty     bool // the worker lacked room, or had a fault, at the start
	shortages, faults int
	misses            int
}

// Begin begins a Period.
func (m *Monitor) Begin() Period {
	p := m.period()
	now, _ := m.measure() // examinations report errors
	p.free = now.free
	return p
}

func (m *Monitor) period() Period {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Period{
		m: m, short: m.short() != nil, faulty: m.fault != nil,
		shortages: m.shortages, faults: m.faults, misses: m.misses,
	}
}

// WasShort reports whether the disk was full at any time since the start.
func (p Period) WasShort() bool {
	if p.m == nil {
		return false
	}
	p.m.look()
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.short || p.m.shortages > p.shortages
}

// HadSpace reports whether the disk had free space all the time since the start, as far as that can
// be known.
func (p Period) HadSpace() bool {
	if p.WasShort() {
		return false
	}
	if p.m == nil {
		return true
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.m.misses == p.misses
}

// WasFaulty reports whether the worker had a fault at any time since the start. It examines the
// worker now.
func (p Period) WasFaulty() bool {
	if p.m == nil {
		return false
	}
	_ = p.m.Examine() // counts
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	return p.faulty || p.m.faults > p.faults
}

// Free returns how many bytes were free at the start.
func (p Period) Free() int64 { return p.free }
