package scrub

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// A fakeTarget has files in one folder; those whose content begins with "bad" are damaged.
type fakeTarget struct {
	dir    string
	shards map[string][]string
	bytes  int64
	onRead func(name string)

	unlisted string // the shard that is

	mu       sync.Mutex
	verified map[string]time.Time // guarded by mu
	files    []string             // that were read; guarded by mu
	broken   error                // guarded by mu
}

func (f *fakeTarget) read() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.files)
}

func (f *fakeTarget) breaks(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.broken = err
}

func newFakeTarget(t *testing.T) *fakeTarget {
	return &fakeTarget{dir: t.TempDir(), shards: map[string][]string{}, verified: map[string]time.Time{}}
}

func (f *fakeTarget) add(t *testing.T, shard, name string, size int) {
	t.Helper()
	f.shards[shard] = append(f.shards[shard], name)
	f.bytes += int64(size)
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(strings.Repeat("x", size)), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (f *fakeTarget) Shards() (all []string, err error) {
	for shard := range f.shards {
		all = append(all, shard)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return all, f.broken
}

func (f *fakeTarget) Files(shard string) ([]string, error) {
	if shard == f.unlisted {
		return nil, fmt.Errorf("%w: input/output error", ErrUnlisted)
	}
	return f.shards[shard], nil
}

func (f *fakeTarget) Holds() (files, bytes int64) {
	for _, names := range f.shards {
		files += int64(len(names))
	}
	return files, f.bytes
}

func (f *fakeTarget) Check(ctx context.Context, name string, since time.Time, r *Reader) (Verdict, error) {
	f.mu.Lock()
	at, ok := f.verified[name]
	f.mu.Unlock()
	if ok && !at.Before(since) {
		return Passed, nil
	}
	file, err := os.Open(filepath.Join(f.dir, name))
	if err != nil {
		return Damaged, nil
	}
	defer file.Close()
	var content strings.Builder
	if _, err := r.Copy(ctx, &content, file, nil); err != nil {
		return Passed, err
	}
	f.mu.Lock()
	f.files = append(f.files, name)
	f.mu.Unlock()
	if f.onRead != nil {
		f.onRead(name)
	}
	if strings.HasPrefix(content.String(), "bad") {
		return Damaged, nil
	}
	return Whole, nil
}

func newScrubber(t *testing.T, o Options, targets ...Target) *Scrubber {
	t.Helper()
	s, err := New(filepath.Join(t.TempDir(), "scrub"), o, targets...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// during runs s while what does something.
func during(t *testing.T, s *Scrubber, what func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	what()
	cancel()
	<-done
}

// TestOptions: unset options have defaults, and invalid ones are refused.
func TestOptions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "scrub")
	for name, o := range map[string]Options{"period": {Every: -1}, "rate": {Rate: -1}} {
		if _, err := New(path, o); err == nil {
			t.Errorf("a %s less than nothing is taken", name)
		}
	}
	o := Options{Metrics: prometheus.NewRegistry()}
	s, err := New(path, o)
	if err != nil {
		t.Fatal(err)
	}
	if st := s.Status(); st != (Status{Every: DefaultEvery, Rate: DefaultRate}) {
		t.Errorf("before the first pass: %+v", st)
	}
	if _, err := New(path, o); err == nil {
		t.Error("two have the same metrics")
	}
}

func TestPassesReadEverythingOncePerPeriod(t *testing.T) {
	target, second := newFakeTarget(t), newFakeTarget(t)
	target.add(t, "b", "b1", 10)
	target.add(t, "a", "a1", 10)
	target.add(t, "a", "a2", 10)
	second.add(t, "a", "c1", 10)
	if err := os.WriteFile(filepath.Join(target.dir, "a2"), []byte("bad"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(t, Options{Every: time.Hour}, target, second)
		began := time.Now()
		during(t, s, func() {
			time.Sleep(time.Minute)
			if want := []string{"a1", "a2", "b1"}; !slices.Equal(target.read(), want) || !slices.Equal(second.read(), []string{"c1"}) {
				t.Errorf("read %v and %v, want %v and c1", target.read(), second.read(), want)
			}
			st := s.Status()
			if st.Done != 1 || st.Damaged != 1 || st.Files != 4 || st.Bytes != 33 || !st.Due.Equal(began.Add(time.Hour)) {
				t.Errorf("after the first pass: %+v", st)
			}
			target.mu.Lock()
			target.verified["a1"] = began.Add(time.Hour + time.Second) // in the future: it is verified when its turn comes
			target.mu.Unlock()
			time.Sleep(time.Hour)
		})
		if want := []string{"a1", "a2", "b1", "a2", "b1"}; !slices.Equal(target.read(), want) {
			t.Errorf("read %v, want %v", target.read(), want)
		}
		if st := s.Status(); st.AllDamaged != 2 || st.Damaged != 1 || st.AllFiles != 7 {
			t.Errorf("after the second pass: %+v", st)
		}
	})
}

// TestShardsThatCannotBeListed: one is told of and counts as damage; the others are read, in each
// pass, and none of them is whole.
func TestShardsThatCannotBeListed(t *testing.T) {
	target := newFakeTarget(t)
	for _, shard := range []string{"a", "b", "c"} {
		target.add(t, shard, shard+"1", 10)
	}
	target.unlisted = "a"
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(t, Options{Every: time.Hour}, target)
		began := time.Now()
		during(t, s, func() { time.Sleep(time.Hour + time.Minute) })
		if want := []string{"b1", "c1", "b1", "c1"}; !slices.Equal(target.read(), want) {
			t.Errorf("read %v, want %v", target.read(), want)
		}
		if st := s.Status(); st.Damaged != 1 || st.AllDamaged != 2 || !st.LastWhole.Equal(began) || st.Done != 1 {
			t.Errorf("after the second pass: %+v", st)
		}
		target.unlisted = ""
		during(t, s, func() { time.Sleep(time.Hour) })
		if st := s.Status(); st.Damaged != 0 || !st.LastWhole.Equal(st.Ended) {
			t.Errorf("after the third pass: %+v", st)
		}
	})
}

func TestPassResumesWhereItWas(t *testing.T) {
	target := newFakeTarget(t)
	for i := range 20 {
		target.add(t, fmt.Sprintf("%02d", i), fmt.Sprintf("f%02d", i), 1<<20)
	}
	path := filepath.Join(t.TempDir(), "scrub")
	synctest.Test(t, func(t *testing.T) {
		var began time.Time
		for n := 0; len(target.read()) < 20; n++ {
			s, err := New(path, Options{Rate: 1 << 20, Every: time.Hour}, target)
			if err != nil {
				t.Fatal(err)
			}
			during(t, s, func() { time.Sleep(3500 * time.Millisecond) })
			if n == 0 {
				began = s.Status().Began
			} else if !s.Status().Began.Equal(began) {
				t.Errorf("run %d began a pass at %v, not the one of %v", n, s.Status().Began, began)
			}
			if st := s.Status(); st.Files != int64(len(target.read())) {
				t.Errorf("run %d counted %d files of %d", n, st.Files, len(target.read()))
			}
			if n > 20 {
				t.Fatalf("after %d runs only %v are read", n, target.read())
			}
		}
		// The file in work when a run ends is read again, and none that was done.
		if compact := slices.Compact(slices.Clone(target.read())); !slices.Equal(compact, target.read()) || len(compact) != 20 {
			t.Errorf("read %v", target.read())
		}
	})
}

func TestRateHolds(t *testing.T) {
	for name, sizes := range map[string][]int{
		"large": {30 << 20},
		"small": slices.Repeat([]int{100}, 30<<20/fileCost),
	} {
		target := newFakeTarget(t)
		for i, size := range sizes {
			target.add(t, "a", fmt.Sprint(i), size)
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScrubber(t, Options{Rate: 1 << 20, Every: time.Hour}, target)
				during(t, s, func() {
					time.Sleep(15 * time.Second)
					st := s.Status()
					if left := time.Until(st.Due).Seconds(); st.Done > 0.55 || name == "small" && (st.Done < 0.45 || left < 13 || left > 17) {
						t.Errorf("after 15 of 30 s: %+v", st)
					}
					time.Sleep(14 * time.Second)
					if st := s.Status(); !st.Ended.IsZero() {
						t.Errorf("after 29 of 30 s: %+v", st)
					}
					time.Sleep(2 * time.Second)
					if st := s.Status(); st.Ended.IsZero() {
						t.Errorf("after 31 s: %+v", st)
					}
				})
			})
		})
	}
}

func TestLoadSlowsAPassWithoutStarvingIt(t *testing.T) {
	target := newFakeTarget(t)
	for i := range 30 {
		target.add(t, "a", fmt.Sprint(i), 1<<20)
	}
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		s := newScrubber(t, Options{Rate: 1 << 20, Every: time.Hour, Busy: busy.Load}, target)
		during(t, s, func() {
			time.Sleep(10 * time.Minute)
			if st := s.Status(); st.Files > 6 || st.Files < 4 {
				t.Errorf("after 10 of 60 busy minutes %d of 30 files are read", st.Files)
			}
			busy.Store(false)
			time.Sleep(5 * time.Second)
			if st := s.Status(); st.Files < 8 {
				t.Errorf("after 5 s without load %d files are read", st.Files)
			}
			busy.Store(true)
			time.Sleep(49*time.Minute + 50*time.Second)
			if st := s.Status(); st.Ended.IsZero() {
				t.Errorf("after an hour of load: %+v", st)
			}
		})
		// A pass that is too late reads at half of the rate.
		target.files, s.at = nil, position{Began: time.Now().Add(-2 * time.Hour), LastWhole: time.Now()}
		during(t, s, func() {
			time.Sleep(20 * time.Second)
			if st := s.Status(); st.Files < 8 || st.Files > 11 {
				t.Errorf("20 s after the end of the period %d files are read", st.Files)
			}
		})
	})
}

func TestRunEndsAtOnce(t *testing.T) {
	target := newFakeTarget(t)
	target.add(t, "a", "large", 10<<20)
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(t, Options{Rate: 1, Every: time.Hour}, target)
		began := time.Now()
		during(t, s, func() { time.Sleep(time.Second) })
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestTargetThatCannotBeListedIsTriedAgain(t *testing.T) {
	target := newFakeTarget(t)
	target.add(t, "a", "file", 10)
	target.breaks(errors.New("no such disk"))
	synctest.Test(t, func(t *testing.T) {
		s := newScrubber(t, Options{Every: time.Hour}, target)
		during(t, s, func() {
			time.Sleep(time.Second)
			if st := s.Status(); !st.Ended.IsZero() || st.Files != 0 {
				t.Errorf("with a broken target: %+v", st)
			}
			target.breaks(nil)
			time.Sleep(2 * retryAfter)
		})
		if st := s.Status(); st.Files != 1 || st.Ended.IsZero() {
			t.Errorf("afterwards: %+v", st)
		}
	})
}

// TestPageCacheStaysAsItWas has one file in memory and another one not, and reads both.
func TestPageCacheStaysAsItWas(t *testing.T) {
	dir, err := os.MkdirTemp("/var/tmp", "forerunner-test-") // a tmpfs has nothing but memory
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	target := newFakeTarget(t)
	target.dir = dir
	cached := func(name string) uint64 {
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		var st unix.Cachestat_t
		if err := unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &st, 0); err != nil {
			t.Skipf("the kernel does not tell what is in memory: %v", err)
		}
		return st.Cache
	}
	for _, name := range []string{"hot", "cold"} {
		target.add(t, "a", name, 3<<20+100)
		file, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if name == "hot" {
			// Page by page: writes leave large folios, which are dropped only as a whole.
			_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_RANDOM)
			if _, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{file}, make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
		}
		_ = file.Close()
	}
	if hot, cold := cached("hot"), cached("cold"); hot == 0 || cold != 0 {
		t.Skipf("before, %d pages of the one are in memory and %d of the other", hot, cold)
	}
	s := newScrubber(t, Options{Rate: 1 << 30}, target)
	target.onRead = func(name string) {
		if hot, cold := cached("hot"), cached("cold"); hot < 3<<20/4096 || cold != 0 {
			t.Errorf("after %s, %d pages of the one are in memory and %d of the other", name, hot, cold)
		}
	}
	s.begin()
	if err := s.pass(t.Context()); err != nil || len(target.read()) != 2 {
		t.Errorf("read %v, %v", target.read(), err)
	}
}
