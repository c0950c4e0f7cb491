package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// A weather is a storage whose calls take time, wait for others if they stand behind, and break or
// bring wrong bytes until the weather is calm.
type weather struct {
	blobs map[digest.Digest][]byte
	slots chan struct{} // of calls that stand behind

	mu       sync.Mutex
	random   *rand.Rand // guarded by mu
	calm     bool       // guarded by mu
	failures int        // guarded by mu
	liar     bool       // it also brings wrong bytes
}

var errWeather = errors.New("the weather is bad")

func (w *weather) chance(n int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.calm && w.random.IntN(n) == 0
}

func (w *weather) number(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.random.IntN(n)
}

func (w *weather) fails(n int) error {
	if !w.chance(n) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures++
	return errWeather
}

func (w *weather) sleep(ctx context.Context, most time.Duration) error {
	select {
	case <-time.After(time.Duration(w.number(int(most)))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// FetchRange implements cas.RangeFetcher.
func (w *weather) FetchRange(ctx context.Context, d digest.Digest, part span.Span, to io.Writer) error {
	if err := errors.Join(w.fails(15), w.sleep(ctx, 50*time.Millisecond)); err != nil {
		return err
	}
	for data := w.blobs[d][part.From:part.To]; len(data) > 0; {
		n := min(1+w.number(1<<19), len(data))
		piece := data[:n]
		if w.liar && w.chance(40) {
			piece = bytes.Clone(piece)
			piece[w.number(n)] ^= 1
			w.mu.Lock()
			w.failures++
			w.mu.Unlock()
		}
		if _, err := to.Write(piece); err != nil {
			return err
		}
		if err := errors.Join(w.fails(25), w.sleep(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
		data = data[n:]
	}
	if w.fails(30) != nil {
		_, err := to.Write([]byte("more than there is"))
		return err
	}
	return w.fails(30)
}

// Fetch implements cas.Fetcher.
func (w *weather) Fetch(ctx context.Context, ds []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	for _, d := range ds {
		if err := w.sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if err := w.fails(8); err != nil {
			return err
		}
		if err := sink(d, bytes.NewReader(w.blobs[d])); err != nil {
			return &cas.FetchError{Blobs: map[digest.Digest]error{d: err}}
		}
	}
	return nil
}

// Behind implements cas.PatientFetcher.
func (w *weather) Behind() cas.Fetcher { return patientWeather{w} }

type patientWeather struct{ *weather }

// FetchRange implements cas.RangeFetcher.
func (w patientWeather) FetchRange(ctx context.Context, d digest.Digest, part span.Span, to io.Writer) error {
	if err := w.sleep(ctx, 10*time.Millisecond); err != nil {
		return err
	}
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if _, err := to.Write(nil); err != nil {
		return err
	}
	return w.weather.FetchRange(ctx, d, part, to)
}

// TestStorm has prefetches of all kinds, which stand still for others and leave, beside readers
// that come, wait for parts and leave, while calls break at any time: who waits gets the right
// bytes or hears of a failure, nobody waits for ever, and everything comes once the weather is
// calm.
func TestStorm(t *testing.T) {
	for seed := range uint64(8) {
		storm(t, seed)
	}
}

// FuzzStorm does so with more seeds.
func FuzzStorm(f *testing.F) { f.Fuzz(storm) }

func storm(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		const sizeLarge = 5 << 20
		random := rand.New(rand.NewPCG(seed, 5))
		w := &weather{blobs: map[digest.Digest][]byte{}, slots: make(chan struct{}, 1+random.IntN(2)), random: rand.New(rand.NewPCG(seed, 6)), liar: seed%3 == 0}
		var large, small []digest.Digest
		for i := range 3 {
			b := servertest.Bytes(uint64(i), sizeLarge+i)
			large = append(large, digest.Of(digest.SHA256, b))
			w.blobs[large[i]] = b
		}
		for i := range 20 {
			b := fmt.Appendf(nil, "small %d", i)
			small = append(small, digest.Of(digest.SHA256, b))
			w.blobs[small[i]] = b
		}
		store, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		group, err := NewGroup(onceStore{store, t}, Options{ArriveAbove: 2 << 20})
		if err != nil {
			t.Fatal(err)
		}
		s := &storming{T: t, w: w, large: large, small: small}
		for range 3 {
			through := group.Through(w)
			through.Yield(random.IntN(2) == 0)
			s.through = append(s.through, through)
		}
		for range 60 {
			s.step(random)
			time.Sleep(time.Duration(random.IntN(int(40 * time.Millisecond))))
		}
		w.mu.Lock()
		w.calm = true
		w.mu.Unlock()
		s.running.Wait()
		for _, d := range append(large, small...) {
			if b, err := s.through[0].ReadBlob(t.Context(), d); err != nil || !bytes.Equal(b, w.blobs[d]) {
				t.Errorf("seed %d: %d bytes, %v", seed, len(b), err)
			}
		}
		group.Close()
		storeWantConsistent(t, &testStore{store, group})
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A storming is what happens in a storm.
type storming struct {
	*testing.T
	w            *weather
	through      []*ReadThrough
	large, small []digest.Digest
	running      sync.WaitGroup
}

// step begins something.
func (s *storming) step(random *rand.Rand) {
	r := s.through[random.IntN(len(s.through))]
	d := s.large[random.IntN(len(s.large))]
	ctx, cancel := context.WithCancel(s.Context())
	var stays time.Duration // 0: for ever
	if random.IntN(2) == 0 {
		stays = time.Duration(1 + random.IntN(int(200*time.Millisecond)))
		time.AfterFunc(stays, cancel)
	}
	seed := random.Uint64()
	s.running.Go(func() {
		defer cancel()
		random := rand.New(rand.NewPCG(seed, 7))
		switch random.IntN(8) {
		case 0, 1:
			_, _ = r.Prefetch(ctx, append([]digest.Digest{d}, s.small[random.IntN(len(s.small))]))
		case 2:
			var parts []span.Span
			for range 1 + random.IntN(8) {
				from := random.Int64N(d.SizeBytes())
				parts = append(parts, span.Span{From: from, To: min(d.SizeBytes(), from+random.Int64N(300_000))})
			}
			release := r.PrefetchRanges(ctx, d, parts)
			time.Sleep(time.Duration(random.IntN(int(time.Second))))
			release()
		case 3:
			s.wants(ctx, r, s.small[random.IntN(len(s.small))])
		case 4:
			s.wants(ctx, r, d)
		default:
			s.reads(ctx, r, d, random)
		}
	})
}

// failed checks an error of a caller.
func (s *storming) failed(ctx context.Context, what string, err error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if ctx.Err() == nil && s.w.failures == 0 {
		s.Errorf("%s: %v, and nothing has failed", what, err)
	}
}

func (s *storming) wants(ctx context.Context, r *ReadThrough, d digest.Digest) {
	if b, err := r.ReadBlob(ctx, d); err != nil {
		s.failed(ctx, "read all", err)
	} else if !bytes.Equal(b, s.w.blobs[d]) {
		s.Errorf("%d wrong bytes", len(b))
	}
}

// reads reads parts of a blob that arrives.
func (s *storming) reads(ctx context.Context, r *ReadThrough, d digest.Digest, random *rand.Rand) {
	file, a, _, err := r.OpenArriving(ctx, d)
	switch {
	case err != nil:
		s.failed(ctx, "open", err)
		return
	case file != nil:
		_ = file.Close()
		return
	}
	defer a.Close()
	var readers sync.WaitGroup
	for range 1 + random.IntN(4) {
		seed := random.Uint64()
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 8))
			for range random.IntN(5) {
				off := random.Int64N(d.SizeBytes())
				p := make([]byte, 1+random.IntN(400_000))
				n, err := a.ReadAt(ctx, p, off)
				switch {
				case err != nil && err != io.EOF:
					s.failed(ctx, "read a part", err)
					return
				case !s.w.liar && !bytes.Equal(p[:n], s.w.blobs[d][off:off+int64(n)]):
					s.Errorf("%d wrong bytes at %d", n, off)
				}
			}
		})
	}
	if random.IntN(3) == 0 {
		if err := a.Wait(ctx); err != nil {
			s.failed(ctx, "wait", err)
		}
	}
	readers.Wait()
}
