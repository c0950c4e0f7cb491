package trust

import (
	"math/rand/v2"
	"testing"
	"time"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A story has everything that has happened to a worker, from which the model computes the expected
// Record.
type story struct {
	runs     []bool // since it was absolved last: whether each failed
	standing Standing
	pauses   []pause
}

type pause struct {
	took  time.Duration
	ended time.Time
}

func (s *story) failures(last int) (n int) {
	for _, failed := range s.runs[max(0, len(s.runs)-last):] {
		if failed {
			n++
		}
	}
	return n
}

func (s *story) isSuspect(limit int) bool {
	lastFailed := s.failures(1) == 1
	return len(s.runs) >= limit && s.failures(limit) == limit ||
		lastFailed && s.failures(16) >= 8 && s.failures(16) >= limit
}

// nextPause is 10 s, and twice the one before for each that began within 20 min of its end, at most
// 10 min.
func (s *story) nextPause(now time.Time) time.Duration {
	if len(s.pauses) == 0 {
		return 10 * time.Second
	}
	before := s.pauses[len(s.pauses)-1]
	if now.After(before.ended.Add(20 * time.Minute)) {
		return 10 * time.Second
	}
	return min(10*time.Minute, before.took*2)
}

// TestRecordIsAsTold applies random outcomes to workers, and compares their Records with the model.
func TestRecordIsAsTold(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 19))
		fails := random.Float64()
		var r Record
		var s story
		now := epoch
		for range 400 {
			now = now.Add(time.Duration(random.ExpFloat64() * float64(time.Minute)))
			switch what := random.IntN(20); {
			case what == 0:
				r.Absolve()
				s.runs, s.standing = nil, Trusted
			case what == 1 && s.standing != Suspended:
				took := s.nextPause(now)
				s.pauses = append(s.pauses, pause{took, now.Add(took)})
				s.standing = Suspended
				if until := r.Suspend(now); !until.Equal(now.Add(took)) {
					t.Fatalf("seed %d: suspended for %s, want %s", seed, until.Sub(now), took)
				}
			case what == 2 && s.standing == Suspended:
				r.Try(now)
				s.standing = OnTrial
				s.pauses[len(s.pauses)-1].ended = now
			default:
				failed := random.Float64() < fails
				r.Ran(failed)
				s.runs = append(s.runs, failed)
			}
			well := s.standing == Trusted && s.failures(1) == 0
			if r.Standing() != s.standing || r.IsWell() != well || r.Failures() != s.failures(16) {
				t.Fatalf("seed %d: standing %d, well %t, %d failures; want %d, %t, %d", seed,
					r.Standing(), r.IsWell(), r.Failures(), s.standing, well, s.failures(16))
			}
			for limit := 1; limit < 40; limit++ {
				if got, want := r.IsSuspect(limit), s.isSuspect(limit); got != want {
					t.Fatalf("seed %d: suspect %t, want %t, after %v of at most %d", seed, got, want, s.runs, limit)
				}
			}
		}
	}
}

// TestPauses says how long suspensions take, one after the other.
func TestPauses(t *testing.T) {
	var r Record
	now := epoch
	for i, want := range []time.Duration{10, 20, 40, 80, 160, 320, 600, 600} {
		until := r.Suspend(now)
		if got := until.Sub(now); got != want*time.Second {
			t.Errorf("suspension %d takes %s, want %s", i, got, want*time.Second)
		}
		now = until
		r.Try(now)
	}
	now = now.Add(21 * time.Minute)
	if got := r.Suspend(now).Sub(now); got != 10*time.Second {
		t.Errorf("after a good while it takes %s", got)
	}
}
