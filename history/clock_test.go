package history

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// TestClock has a wall clock that is set forward and back, and one that drifts.
func TestClock(t *testing.T) {
	var c clock
	var wall, elapsed time.Duration
	for _, step := range []struct {
		elapses, leaps time.Duration
		want           bool
	}{
		{0, 0, false},
		{59 * time.Minute, 0, false},
		{time.Minute, 0, true},
		{time.Minute, 480 * time.Hour, false}, // set forward
		{59 * time.Minute, 0, false},
		{time.Minute, -480 * time.Hour, false}, // and back
		{time.Hour, 0, true},
		{time.Hour, 59 * time.Second, true}, // drifts
		{time.Hour, 59 * time.Second, true},
		{time.Minute, -time.Hour, false},
		{time.Hour, 0, true},
	} {
		elapsed += step.elapses
		wall += step.elapses + step.leaps
		if got := c.isTrusted(epoch.Add(wall), elapsed, time.Hour); got != step.want {
			t.Errorf("after %s, %s by the wall clock: %v, want %v", elapsed, wall, got, step.want)
		}
	}
}

// TestRunExpires removes records for their age, but not those that a clock says are old that has
// just started: it may be wrong.
func TestRunExpires(t *testing.T) {
	folder := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := open(t, folder, Options{Keep: 14 * 24 * time.Hour})
		r := recordOf(1)
		r.Ended = timestamppb.New(time.Now().Add(-20 * 24 * time.Hour))
		s.Add(r)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { s.Run(ctx); close(ended) }()
		for _, test := range []struct {
			after time.Duration
			want  int64
		}{{59 * time.Minute, 1}, {2 * time.Minute, 0}} {
			time.Sleep(test.after)
			synctest.Wait()
			if n := s.Stats().Records; n != test.want {
				t.Errorf("%d records after %s, want %d", n, test.after, test.want)
			}
		}
		stop()
		<-ended
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestClockIsSetBack: records from before a clock is set back by an hour are not older than those
// after it, and do not keep these longer than they should.
func TestClockIsSetBack(t *testing.T) {
	const keep = 14 * time.Minute
	s := open(t, t.TempDir(), Options{Keep: keep})
	now := epoch
	add := func(from, to int) {
		for i := from; i < to; i++ {
			now = now.Add(time.Second)
			r := recordOf(i)
			r.Ended = timestamppb.New(now)
			if !s.Add(r) {
				t.Fatalf("record %d is not taken", i)
			}
			if i%10 == 0 {
				s.write(true)
				s.expire(now)
			}
		}
	}
	add(0, 300)
	now = now.Add(-time.Hour)
	add(300, 600)
	if n := len(find(t, s, Query{Limit: 100})); n != 600 {
		t.Errorf("%d records five minutes after the clock was set back, want all 600", n)
	}
	add(600, 2000) // 28 minutes
	n := len(find(t, s, Query{Limit: 100}))
	if most := int((keep + keep/segmentParts) / time.Second); n < int(keep/time.Second) || n > most+10 {
		t.Errorf("%d records, want those of %s: %d to %d", n, keep, int(keep/time.Second), most)
	}
}
