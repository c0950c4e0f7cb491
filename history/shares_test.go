package history

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestShares has one caller publish far more builds than there is room for, with large records or
// with long texts. The records of other callers must be kept, and other callers must always find
// room. The first caller must find room again in the next segment.
func TestShares(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		maxBytes int64
		many     int                       // builds of the flood, several times as many as there is room for
		text     func(r *rand.Rand) string // a target of the flood
		targets  int
	}{
		"large builds": {2 << 20, 2000, func(r *rand.Rand) string { return noise(r, 250) }, 40},
		"long texts":   {16 << 20, 10_000, func(r *rand.Rand) string { return noise(r, 10) + strings.Repeat("x", 1900) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			core, logged := observer.New(zap.WarnLevel)
			s := open(t, t.TempDir(), Options{Keep: 14 * day, MaxBytes: c.maxBytes, Memory: 1, Logger: zap.New(core)})
			defer s.Close()
			random := rand.New(rand.NewPCG(1, 1))
			now := epoch
			add := func(caller, invocation string, targets int) bool {
				r := buildOf(invocation, caller, 1)
				r.Ended.Seconds, r.Ended.Nanos = now.Unix(), 0
				for range targets {
					r.Build.Patterns = append(r.Build.Patterns, c.text(random))
				}
				return s.AddBuild(r, "user "+caller)
			}
			flood := func(n int) (kept int) {
				for i := range n {
					if add("mallory", fmt.Sprint(now.Unix(), "-", i), c.targets) {
						kept++
					}
					if i%100 == 0 {
						s.write(true)
						s.expire(now)
					}
				}
				return kept
			}
			fill(t, s, 0, 500)
			if !add("alice", "old", 0) {
				t.Error("the first build is not kept")
			}
			first := flood(c.many)
			if !add("alice", "new", 0) {
				t.Error("others find no room during the flood")
			}
			now = now.Add(2 * day)
			second := flood(c.many)
			if first == 0 || first > c.many/2 || second == 0 || second >= first {
				t.Errorf("of %d builds each are kept %d, while there is room, and %d", c.many, first, second)
			}
			if got := foundBuilds(t, s, Query{Limit: 100, Where: map[Field]string{User: "alice"}}); len(got) != 2 {
				t.Errorf("what is left of others are %q", got)
			}
			if n := len(find(t, s, Query{Limit: 1000})); n != 500 {
				t.Errorf("of 500 operations %d are left", n)
			}
			if lost := s.Stats().Lost; lost != uint64(2*c.many-first-second) {
				t.Errorf("%d count as lost", lost)
			}
			if n := logged.FilterField(zap.String("publisher", "user mallory")).Len(); n == 0 || n > 10 {
				t.Errorf("it is logged %d times", n)
			}
		})
	}
}

// TestSharesWithoutPressure stores all builds of one caller while half of the space is free or
// unlimited. Even a small index must not limit them.
func TestSharesWithoutPressure(t *testing.T) {
	for _, o := range []Options{{MaxBytes: 8 << 20}, {}, {Memory: 1}} {
		s := open(t, t.TempDir(), o)
		random := rand.New(rand.NewPCG(1, 1))
		for i := range 300 {
			r := buildOf(fmt.Sprint(i), "alice", int64(i))
			r.Build.Failure = noise(random, 10<<10)
			r.Invocation += strings.Repeat("x", 1900)
			if !s.AddBuild(r, "user alice") {
				t.Fatalf("of at most %d bytes, build %d is not kept", o.MaxBytes, i)
			}
			s.write(true)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func noise(r *rand.Rand, n int) string {
	b := make([]byte, n)
	var bits uint64
	for i := range b {
		if i%16 == 0 {
			bits = r.Uint64()
		}
		b[i] = "0123456789abcdef"[bits&15]
		bits >>= 4
	}
	return string(b)
}
