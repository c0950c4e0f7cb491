package health

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestLookout: a process that fills a disk at full speed, at any moment, and frees it at once, is
// noticed.
func TestLookout(t *testing.T) {
	const size, reserve = 1 << 30, 16 << 20
	for seed := range uint64(1000) {
		random := rand.New(rand.NewPCG(seed, 16))
		start := time.Now()
		used := random.Int64N(size - reserve)
		begins := start.Add(time.Duration(random.Int64N(int64(time.Second))))
		ends := begins.Add(Lasts(size-used, unbounded)) // it is full, for this moment
		at := func(now time.Time) space {
			free := int64(size) - used
			if now.After(begins) && !now.After(ends) {
				free -= int64(now.Sub(begins).Seconds() * fillBytes)
			}
			return space{free: free, scarce: free < reserve/2, lasts: Lasts(free, unbounded)}
		}
		var l lookout
		seen := false
		for now := start; !now.After(ends.Add(time.Second)); {
			s := at(now)
			seen = l.sees(now, now, s) || s.scarce || seen
			now = now.Add(NextLook(s.lasts))
			if random.IntN(20) == 0 { // the machine is busy
				now = now.Add(time.Duration(random.Int64N(int64(time.Second))))
			}
		}
		if !seen {
			t.Fatalf("seed %d: nobody has seen %d bytes fill up", seed, size-used)
		}
	}
}

// TestBusyMachineIsNoFullDisk: looks that come in time, and a disk that has much room, give no
// doubt.
func TestBusyMachineIsNoFullDisk(t *testing.T) {
	var l lookout
	now := time.Now()
	for _, late := range []time.Duration{0, 0, mostLook, 0, time.Second, 0} {
		s := space{lasts: Lasts(20<<30, unbounded)}
		if l.sees(now, now.Add(time.Millisecond), s) {
			t.Errorf("a look that was %s late was too late", late)
		}
		now = now.Add(NextLook(s.lasts) + late)
	}
	for _, c := range []struct{ bytes, files int64 }{{0, 1 << 20}, {1 << 40, 0}, {1 << 20, 1 << 20}} {
		if next := NextLook(Lasts(c.bytes, c.files)); next < leastLook || next > 2*leastLook {
			t.Errorf("with %d bytes and %d files left it is looked at again after %s", c.bytes, c.files, next)
		}
	}
}

// TestMoments: actions that ran at the time learn that a disk may have been full between two
// measurements, even if the store has freed space on it.
func TestMoments(t *testing.T) {
	g, dir := smallDisk(t)
	for name, happens := range map[string]func(){
		"late look": func() { time.Sleep(mostLook) },
		"room was made": func() {
			ballast := filepath.Join(dir, "ballast")
			check(t, os.WriteFile(ballast, make([]byte, 4<<20-16<<10), 0o600))
			_, err := g.measure()
			check(t, err)
			check(t, os.Remove(ballast))
		},
	} {
		synctest.Test(t, func(t *testing.T) { // no time passes by itself
			g.lookout = lookout{}
			before := g.Begin()
			if !before.HadSpace() {
				t.Error("it had no room from the start")
			}
			happens()
			if before.WasShort() || before.HadSpace() {
				t.Errorf("%s: the disk is full: %t; had room all the time: %t", name, before.WasShort(), before.HadSpace())
			}
			if during := g.Begin(); !during.HadSpace() {
				t.Errorf("%s: who began afterwards had no room", name)
			}
		})
	}
	if !(Period{}).HadSpace() {
		t.Error("who was never there had no room")
	}
}
