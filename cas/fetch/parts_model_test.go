package fetch

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// onceStore checks that no byte of an arriving blob is written twice.
type onceStore struct {
	*disk.Store
	t *testing.T
}

func (s onceStore) Receive(d digest.Digest) cas.Incoming {
	return &onceIncoming{Incoming: s.Store.Receive(d), t: s.t}
}

type onceIncoming struct {
	cas.Incoming
	t    *testing.T
	mu   sync.Mutex
	have span.Set // guarded by mu
}

func (in *onceIncoming) WriteAt(p []byte, off int64) (int, error) {
	in.mu.Lock()
	w := span.Span{From: off, To: off + int64(len(p))}
	if in.have.End(off) > off || in.have.Gap(off, w.To).To < w.To {
		in.t.Errorf("%v is written again", w)
	}
	in.have.Add(w)
	in.mu.Unlock()
	return in.Incoming.WriteAt(p, off)
}

// TestPartsUnderManyHands has parts foreseen at random, right or wrong, while readers come and go,
// streams deliver in random pieces in a random order, and those for parts break: all bytes are
// right, and none is written twice.
func TestPartsUnderManyHands(t *testing.T) {
	data := servertest.Bytes(3, manyHandsBytes)
	for seed := range uint64(20) {
		partsUnderManyHands(t, data, seed)
	}
}

// FuzzPartsUnderManyHands does so with more seeds.
func FuzzPartsUnderManyHands(f *testing.F) {
	data := servertest.Bytes(3, manyHandsBytes)
	f.Fuzz(func(t *testing.T, seed uint64) { partsUnderManyHands(t, data, seed) })
}

const manyHandsBytes = 8 << 20

func partsUnderManyHands(t *testing.T, data []byte, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { partsOfHands(t, data, rand.New(rand.NewPCG(seed, 4))) })
}

func partsOfHands(t *testing.T, data []byte, random *rand.Rand) {
	const size = manyHandsBytes
	u, d := storeNewRanges(data)
	disk, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	group, err := NewGroup(onceStore{disk, t}, Options{ArriveAbove: 2 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := &testStore{disk, group}
	anywhere := func(most int64) span.Span {
		from := random.Int64N(size)
		return span.Span{From: from, To: from + 1 + random.Int64N(min(most, size-from))}
	}
	var releases []func()
	var hands []*Arrival
	var reads []<-chan error
	var calls []*storeCall
	for range 40 + random.IntN(120) {
		switch random.IntN(8) {
		case 0:
			var parts []span.Span
			for range 1 + random.IntN(30) {
				parts = append(parts, anywhere(400_000))
			}
			releases = append(releases, s.Through(u).PrefetchRanges(t.Context(), d, parts))
		case 1:
			if file, a, _, err := s.Through(u).OpenArriving(t.Context(), d); err != nil {
				t.Fatal(err)
			} else if a != nil {
				hands = append(hands, a)
			} else {
				_ = file.Close()
			}
		case 2, 3:
			if len(hands) > 0 {
				w := anywhere(200_000)
				reads = append(reads, storeRead(u, hands[random.IntN(len(hands))], w.From, w.To-w.From))
			}
		default:
			for synctest.Wait(); len(u.calls) > 0; {
				calls = append(calls, <-u.calls)
			}
			if len(calls) == 0 {
				continue
			}
			i := random.IntN(len(calls))
			if partsStep(random, calls[i], int64(len(u.data))) {
				calls = slices.Delete(calls, i, i+1)
			}
		}
		synctest.Wait()
	}
	u.free()
	for _, read := range reads {
		storeWant(t, read)
	}
	for _, release := range releases {
		release()
	}
	for _, a := range hands {
		if err := a.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		a.Close()
	}
	if b, err := s.Through(u).ReadBlob(t.Context(), d); err != nil || !bytes.Equal(b, u.data) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	synctest.Wait()
	storeWantConsistent(t, s)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// partsStep makes a call deliver something, or break if it is for a part. It returns whether the
// call has ended.
func partsStep(random *rand.Rand, c *storeCall, size int64) bool {
	select {
	case <-c.over:
		return true
	default:
	}
	left := int64(len(c.data)) - c.at
	switch {
	case left == 0:
		c.end(nil)
		return true
	case int64(len(c.data)) < size && random.IntN(12) == 0:
		c.end(errors.New("broken"))
		return true
	}
	n := 1 + random.Int64N(min(left, 1_500_000))
	select {
	case c.steps <- func() (bool, error) {
		wrote, err := c.w.Write(c.data[c.at:][:n])
		c.at += int64(wrote)
		return err != nil, err
	}:
		return false
	case <-c.over:
		return true
	}
}
