package prefetch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/profiles"
	"github.com/forerunner-build/forerunner/records/record"
)

// fakeStore is a Store in memory that counts, fails and hangs as it is told.
type fakeStore struct {
	mu      sync.Mutex
	values  map[record.Key][]byte
	gets    int
	puts    int
	fail    error
	hang    bool
	refuses string // a bucket that it does not keep
	plain   bool   // keeps no fields but those of FileSystemAccessProfile
}

func (s *fakeStore) Get(ctx context.Context, k record.Key) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	if err := s.troubleLocked(ctx); err != nil {
		return nil, err
	}
	value, ok := s.values[k]
	if !ok {
		return nil, fmt.Errorf("get %v: %w", k, record.ErrNotFound)
	}
	return slices.Clone(value), nil
}

func (s *fakeStore) Put(ctx context.Context, k record.Key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	if err := s.troubleLocked(ctx); err != nil {
		return err
	}
	if k.Bucket == s.refuses {
		return errors.New("no such bucket")
	}
	if s.plain {
		var m fsac.FileSystemAccessProfile
		if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(value, &m); err != nil {
			return err
		}
		value, _ = proto.Marshal(&m)
	}
	if s.values == nil {
		s.values = map[record.Key][]byte{}
	}
	s.values[k] = slices.Clone(value)
	return nil
}

func (s *fakeStore) troubleLocked(ctx context.Context) error {
	if s.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.fail
}

func (s *fakeStore) set(change func(*fakeStore)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// written returns how often Put was called since the last time, in all buckets.
func (s *fakeStore) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.puts
	s.puts = 0
	return n
}

// actionOf is an action whose digest tells name; it is like no other one.
func actionOf(name string) Action {
	return Action{Digest: digest.Of(digest.SHA256, []byte(name))}
}

// compileOf is one of several actions that are alike.
func compileOf(name string) Action {
	a := actionOf(name)
	a.Mnemonic, a.Tool, a.Platform = "CppCompile", "external/gcc/bin/g++", "os=linux"
	return a
}

func learn(p *Profiles, a Action, paths ...string) {
	p.Learn(context.Background(), a, hashesOf(paths...), Inputs{})
}

// foreseen returns which of paths p foresees for a.
func foreseen(p *Profiles, a Action, paths ...string) ([]string, Origin) {
	found, origin := p.Find(context.Background(), a)
	var in []string
	for _, path := range paths {
		if found != nil && found.Contains(HashPath(path)) {
			in = append(in, path)
		}
	}
	return in, origin
}

func expect(t *testing.T, p *Profiles, a Action, origin Origin, all []string, want ...string) {
	t.Helper()
	got, o := foreseen(p, a, all...)
	if o != origin || !slices.Equal(got, want) {
		t.Errorf("foreseen: %q, %s; want %q, %s", got, o, want, origin)
	}
}

func TestReducedDigest(t *testing.T) {
	command := digest.Of(digest.SHA256, []byte("command")).Proto()
	platform := &repb.Platform{Properties: []*repb.Platform_Property{{Name: "os", Value: "linux"}}}
	full := &repb.Action{
		CommandDigest: command, Platform: platform, DoNotCache: true, Salt: []byte("x"),
		InputRootDigest: digest.Of(digest.SHA256, []byte("root")).Proto(),
	}
	b, err := proto.Marshal(&repb.Action{CommandDigest: command, Platform: platform})
	if err != nil {
		t.Fatal(err)
	}
	if got := digest.OfReduced(digest.SHA256, full); got != digest.Of(digest.SHA256, b) {
		t.Errorf("reduced digest %s", got)
	}
	if got := digest.OfReduced(digest.BLAKE3, full); got != digest.Of(digest.BLAKE3, b) {
		t.Errorf("reduced digest %s", got)
	}
	other := proto.CloneOf(full)
	other.Platform.Properties[0].Value = "windows"
	if digest.OfReduced(digest.SHA256, other) == digest.OfReduced(digest.SHA256, full) {
		t.Error("the platform is not in the digest")
	}
}

func TestProfilesRemember(t *testing.T) {
	var s fakeStore
	a, all := actionOf("a"), []string{"", "in", "other"}
	p := NewProfiles(&s, ProfilesOptions{})
	expect(t, p, a, None, all)
	learn(p, a) // nobody watched that run
	if s.written() != 0 {
		t.Error("a run without reads was written")
	}
	learn(p, a, "in", "", "in")
	expect(t, p, a, Exact, all, "", "in")
	expect(t, p, actionOf("b"), None, all)
	elsewhere := a
	elsewhere.Instance = "elsewhere"
	expect(t, p, elsewhere, None, all)
	if n := s.written(); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
	expect(t, NewProfiles(&s, ProfilesOptions{}), a, Exact, all, "", "in")
	expect(t, p, Action{}, None, all)
	learn(p, Action{}, all...)

	// What is stored is what Buildbarn's workers read.
	var m fsac.FileSystemAccessProfile
	if err := proto.Unmarshal(s.values[record.Key{Bucket: "profile", Digest: a.Digest}], &m); err != nil {
		t.Fatal(err)
	}
	if q, ok := ParseProfile(&m); !ok || !q.Contains(HashPath("in")) || q.Contains(HashPath("other")) {
		t.Error("the stored profile is another")
	}
}

// TestProfilesWriteOnlyNews runs an action many times, with a fresh memory each time and with
// one that lasts.
func TestProfilesWriteOnlyNews(t *testing.T) {
	paths := numbered("dir/%d", 3000)
	for _, plain := range []bool{false, true} {
		for _, lasting := range []bool{false, true} {
			t.Run(fmt.Sprintf("plain=%t/lasting=%t", plain, lasting), func(t *testing.T) {
				s := &fakeStore{plain: plain}
				p := NewProfiles(s, ProfilesOptions{})
				run := func(paths []string) int {
					if !lasting {
						p = NewProfiles(s, ProfilesOptions{})
					}
					learn(p, actionOf("a"), paths...)
					return s.written()
				}
				if n := run(paths); n != 1 {
					t.Fatalf("%d writes of the first run", n)
				}
				for range 5 {
					if n := run(paths); n != 0 {
						t.Errorf("%d writes of the same run", n)
					}
				}
				if n := run(append(slices.Clone(paths), "new")); n != 1 {
					t.Errorf("%d writes of a run that read one more", n)
				}
			})
		}
	}
}

// TestProfilesForeseeEveryOtherTime reads an input in every other run, and then no more.
func TestProfilesForeseeEveryOtherTime(t *testing.T) {
	all := []string{"always", "sometimes"}
	for _, lasting := range []bool{false, true} {
		s := &fakeStore{}
		p := NewProfiles(s, ProfilesOptions{})
		for i := range 12 {
			if !lasting {
				p = NewProfiles(s, ProfilesOptions{})
			}
			learn(p, actionOf("a"), all[:1+i%2]...)
			if i > 0 {
				expect(t, p, actionOf("a"), Exact, all, all...)
			}
		}
		s.written()
		for i := range 8 {
			if !lasting {
				p = NewProfiles(s, ProfilesOptions{})
			}
			learn(p, actionOf("a"), "always")
			if i >= exactRuns-1 {
				expect(t, p, actionOf("a"), Exact, all, "always")
			}
		}
		if n := s.written(); n > exactRuns {
			t.Errorf("lasting=%t: %d writes until the old runs were forgotten", lasting, n)
		}
	}
}

// TestPlainStore has a store that keeps filters only, which cannot forget.
func TestPlainStore(t *testing.T) {
	s := &fakeStore{plain: true}
	common := numbered("common/%d", 1000)
	find := func() *Profile {
		p, origin := NewProfiles(s, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
		if origin != Exact {
			t.Fatalf("the profile is %s", origin)
		}
		return p
	}
	for run := range 60 {
		own := numbered(fmt.Sprintf("run%d/%%d", run), 100)
		learn(NewProfiles(s, ProfilesOptions{}), actionOf("a"), append(own, common...)...)
		p := find()
		for _, h := range hashesOf(append(own, common...)...) {
			if !p.Contains(h) {
				t.Fatalf("run %d: a path that it read is missing", run)
			}
		}
		if n := p.Paths(); n > 1100*5/4 {
			t.Fatalf("run %d: the filter has grown to %d paths", run, n)
		}
		if rate := p.FalsePositives(); rate > 0.02 {
			t.Fatalf("run %d: %.3f false positives", run, rate)
		}
	}
	// With a memory of its own a Profiles still forgets run by run.
	all := []string{"always", "once"}
	p := NewProfiles(s, ProfilesOptions{MaxAge: time.Nanosecond})
	learn(p, actionOf("b"), all...)
	learn(p, actionOf("b"), "always")
	expect(t, p, actionOf("b"), Exact, all, all...)
	for range exactRuns {
		learn(p, actionOf("b"), "always")
	}
	expect(t, p, actionOf("b"), Exact, all, "always")
}

// TestForeignRecords has records of others, and such as only an attacker writes.
func TestForeignRecords(t *testing.T) {
	in := hashesOf("a", "b")
	good := NewProfile(in, ProfilesOptions{}.Filter).Message()
	encoded := func(h *profiles.History) []byte {
		b, err := proto.Marshal(&profiles.Record{
			BloomFilter: good.GetBloomFilter(), BloomFilterHashFunctions: good.GetBloomFilterHashFunctions(),
			History: h,
		})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	full, err := proto.Marshal(&fsac.FileSystemAccessProfile{
		BloomFilter: slices.Repeat([]byte{0xff}, 1000), BloomFilterHashFunctions: 1 << 31,
	})
	if err != nil {
		t.Fatal(err)
	}
	unsorted := []uint64{2, 1}
	for name, test := range map[string]struct {
		value []byte
		want  Origin
	}{
		"no history":          {encoded(nil), Exact},
		"empty":               {nil, None},
		"noise":               {[]byte("\x0a\xffnoise"), None},
		"no filter":           {[]byte{0x10, 3}, None},
		"nothing read":        {[]byte{0x0a, 1, 0x80, 0x10, 1}, None},
		"everything":          {full, None},
		"empty history":       {encoded(&profiles.History{}), Exact},
		"unsorted":            {encoded(&profiles.History{Paths: unsorted, Readers: []uint32{1, 1}, Runs: []uint64{1}}), Exact},
		"too few readers":     {encoded(&profiles.History{Paths: []uint64{1}, Runs: []uint64{1}}), Exact},
		"readers of no run":   {encoded(&profiles.History{Paths: []uint64{1}, Readers: []uint32{2}, Runs: []uint64{1}}), Exact},
		"no readers":          {encoded(&profiles.History{Paths: []uint64{1}, Readers: []uint32{0}, Runs: []uint64{1}}), Exact},
		"newest out of range": {encoded(&profiles.History{Runs: []uint64{1}, Newest: 1 << 31}), Exact},
		"many runs":           {encoded(&profiles.History{Runs: make([]uint64, 5)}), Exact},
	} {
		t.Run(name, func(t *testing.T) {
			s := &fakeStore{values: map[record.Key][]byte{{Bucket: "profile", Digest: actionOf("a").Digest}: test.value}}
			p := NewProfiles(s, ProfilesOptions{})
			if found, origin := p.Find(t.Context(), actionOf("a")); origin != test.want || (found == nil) != (origin == None) {
				t.Errorf("found %v, %s; want %s", found, origin, test.want)
			}
			for range 2 {
				learn(p, actionOf("a"), "c", "d", "e") // so much that none of the old filter is kept
			}
			all := []string{"a", "b", "c", "d", "e"}
			expect(t, NewProfiles(s, ProfilesOptions{}), actionOf("a"), Exact, all, "c", "d", "e")
		})
	}
}

// TestLargeRuns have too many paths for a history.
func TestLargeRuns(t *testing.T) {
	var s fakeStore
	small, large := numbered("small/%d", 100), numbered("large/%d", exactPaths+1)
	for i, paths := range [][]string{small, large, large, small, large} {
		p := NewProfiles(&s, ProfilesOptions{})
		s.written()
		learn(p, actionOf("a"), paths...)
		if n := s.written(); n != 1 && (i != 2 || n != 0) {
			t.Errorf("run %d: %d writes", i, n)
		}
		found, origin := NewProfiles(&s, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
		if origin != Exact {
			t.Fatalf("run %d: %s", i, origin)
		}
		for _, h := range hashesOf(paths...) {
			if !found.Contains(h) {
				t.Fatalf("run %d: a path that it read is missing", i)
			}
		}
		for k, v := range s.values {
			if len(v) > 1<<20 {
				t.Errorf("%v has %d bytes", k, len(v))
			}
		}
	}
}

func TestStoreFails(t *testing.T) {
	for name, broken := range map[string]func(*fakeStore){
		"fails": func(s *fakeStore) { s.fail = errors.New("no disk") },
		"hangs": func(s *fakeStore) { s.hang = true },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zapcore.WarnLevel)
				s := &fakeStore{}
				p := NewProfiles(s, ProfilesOptions{Logger: zap.New(core)})
				all := []string{"x", "y"}
				learn(p, actionOf("a"), "x")
				s.set(broken)
				start := time.Now()
				for range 50 {
					expect(t, p, actionOf("b"), None, all)
					time.Sleep(100 * time.Millisecond)
				}
				if spent := time.Since(start); spent > 20*time.Second {
					t.Errorf("50 actions waited for %s", spent-5*time.Second)
				}
				expect(t, p, actionOf("a"), Exact, all, "x") // from memory
				learn(p, actionOf("a"), "x", "y")
				learn(p, actionOf("b"), "y")
				expect(t, p, actionOf("b"), Exact, all, "y")
				if n := logs.FilterField(zap.String("operation", "get")).Len(); n != 1 {
					t.Errorf("%d warnings that get fails, want 1: %v", n, logs.All())
				}
				if n := logs.FilterField(zap.String("operation", "put")).Len(); n != 1 {
					t.Errorf("%d warnings that put fails, want 1: %v", n, logs.All())
				}
				time.Sleep(20 * time.Second) // how long a store that hung for two is left alone
				s.set(func(s *fakeStore) { s.fail, s.hang = nil, false })
				learn(p, actionOf("a"), "x", "y")
				p.Flush(t.Context())
				fresh := NewProfiles(s, ProfilesOptions{})
				expect(t, fresh, actionOf("a"), Exact, all, "x", "y")
				expect(t, fresh, actionOf("b"), Exact, all, "y")
				time.Sleep(2 * time.Minute)
				s.set(broken)
				expect(t, p, actionOf("c"), None, all)
				if n := logs.FilterField(zap.String("operation", "get")).Len(); n > 2 {
					t.Errorf("%d warnings of two failures", n)
				}
			})
		})
	}
}

// TestCancelledAsk says nothing about the store: who asked has gone.
func TestCancelledAsk(t *testing.T) {
	core, logs := observer.New(zapcore.WarnLevel)
	s := &fakeStore{fail: context.Canceled}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p := NewProfiles(s, ProfilesOptions{Logger: zap.New(core)})
	if _, origin := p.Find(ctx, actionOf("a")); origin != None || logs.Len() != 0 {
		t.Errorf("%s, %v", origin, logs.All())
	}
}

// TestPatienceOfTheCaller is shorter than the own one; yet the store is known to hang.
func TestPatienceOfTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zapcore.WarnLevel)
		s := &fakeStore{hang: true}
		p := NewProfiles(s, ProfilesOptions{Logger: zap.New(core), Timeout: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p.Find(ctx, actionOf("a"))
		start := time.Now()
		p.Find(t.Context(), actionOf("a"))
		if spent := time.Since(start); spent > 0 || logs.Len() != 1 {
			t.Errorf("the next one waited for %s: %v", spent, logs.All())
		}
	})
}

// TestFindInMemory counts how often the store is asked, and that it is asked again.
func TestFindInMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		here, there := NewProfiles(s, ProfilesOptions{}), NewProfiles(s, ProfilesOptions{})
		all := []string{"x", "y"}
		learn(here, actionOf("a"), "x")
		s.gets = 0
		for range 100 {
			expect(t, here, actionOf("a"), Exact, all, "x")
		}
		if s.gets != 0 {
			t.Errorf("the store was asked %d times", s.gets)
		}
		learn(there, actionOf("a"), "x", "y")
		time.Sleep(time.Minute)
		expect(t, here, actionOf("a"), Exact, all, "x", "y")
		s.set(func(s *fakeStore) { clear(s.values) }) // evicted there, known here
		time.Sleep(time.Minute)
		expect(t, here, actionOf("a"), Exact, all, "x", "y")
		here.Flush(t.Context())
		expect(t, NewProfiles(s, ProfilesOptions{}), actionOf("a"), Exact, all, "x", "y")
	})
}

// gatedStore is a Store whose Put waits until it is let through.
type gatedStore struct {
	fakeStore
	begun, gate chan struct{}
}

func (s *gatedStore) Put(ctx context.Context, k record.Key, value []byte) error {
	s.begun <- struct{}{}
	<-s.gate
	return s.fakeStore.Put(ctx, k, value)
}

// TestLearnDuringWrite has a run that ends while what an earlier one read is being written:
// it waits for nothing, and is written after it.
func TestLearnDuringWrite(t *testing.T) {
	s := &gatedStore{begun: make(chan struct{}), gate: make(chan struct{})}
	p := NewProfiles(s, ProfilesOptions{Timeout: time.Minute})
	var wg sync.WaitGroup
	wg.Go(func() { learn(p, actionOf("a"), "x") })
	<-s.begun
	learn(p, actionOf("a"), "y")
	s.gate <- struct{}{}
	<-s.begun
	s.gate <- struct{}{}
	wg.Wait()
	all := []string{"x", "y"}
	expect(t, NewProfiles(s, ProfilesOptions{}), actionOf("a"), Exact, all, all...)
	if p.Flush(t.Context()); s.written() != 2 {
		t.Error("two runs were not written twice")
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := &fakeStore{}
	const most = 100 << 10
	p := NewProfiles(s, ProfilesOptions{CacheBytes: most})
	for i := range 200 {
		learn(p, actionOf(fmt.Sprint(i)), numbered("dir/%d", 100)...)
	}
	if n := len(p.cache.all()); n < 20 || n > 80 || p.cache.entries.Weight() > most {
		t.Errorf("%d entries of %d bytes are kept", n, p.cache.entries.Weight())
	}
	var sum int64
	for _, e := range p.cache.all() {
		sum += e.weight()
	}
	if sum != p.cache.entries.Weight() {
		t.Errorf("%d bytes are counted, there are %d", p.cache.entries.Weight(), sum)
	}
	s.gets = 0
	expect(t, p, actionOf("199"), Exact, []string{"dir/5"}, "dir/5")
	expect(t, p, actionOf("0"), Exact, []string{"dir/5"}, "dir/5")
	if s.gets != 1 {
		t.Errorf("the store was asked %d times, want once for the one that was dropped", s.gets)
	}
}

// TestProfilesTogether has several runs of few actions at once, with a slow store; what
// each of them read last is known in the end.
func TestProfilesTogether(t *testing.T) {
	s := &fakeStore{}
	p := NewProfiles(s, ProfilesOptions{MaxAge: time.Nanosecond})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 40 {
				a := compileOf(fmt.Sprint(j % 3))
				p.Find(context.Background(), a)
				learn(p, a, "common", fmt.Sprintf("%d/%d", i, j))
			}
		})
	}
	wg.Wait()
	p.Flush(t.Context())
	fresh := NewProfiles(s, ProfilesOptions{})
	for j := range 3 {
		expect(t, fresh, compileOf(fmt.Sprint(j)), Exact, []string{"common", "never"}, "common")
	}
	expect(t, fresh, compileOf("another"), Coarse, []string{"common", "never"}, "common")
}

func BenchmarkFind(b *testing.B) {
	p := NewProfiles(&fakeStore{}, ProfilesOptions{})
	learn(p, actionOf("a"), numbered("dir/%d", 10_000)...)
	for b.Loop() {
		p.Find(b.Context(), actionOf("a"))
	}
}

func BenchmarkLearn(b *testing.B) {
	for _, test := range []struct {
		name string
		news int
	}{{"same", 0}, {"news", 1}} {
		b.Run(test.name, func(b *testing.B) {
			p := NewProfiles(&fakeStore{}, ProfilesOptions{})
			a := compileOf("a")
			runs := make([][]PathHash, 8)
			for i := range runs {
				runs[i] = hashesOf(append(numbered("dir/%d", 5000), fmt.Sprintf("own/%d", i*test.news))...)
				slices.Sort(runs[i])
			}
			for i := 0; b.Loop(); i++ {
				p.Learn(b.Context(), a, runs[i%len(runs)], Inputs{})
			}
		})
	}
}
