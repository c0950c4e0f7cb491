package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/test/programs"
)

const (
	// These say how long a soak lasts and which one it is: see "make soak".
	soakTimeVariable = "FORERUNNER_TEST_SOAK"
	soakSeedVariable = "FORERUNNER_TEST_SOAK_SEED"

	soakShort   = 5 * time.Second
	soakLeast   = 3 // rounds, however slow the machine is
	soakClients = 8
	// soakPatience is after how long a client counts as one that waits for ever.
	soakPatience = 5 * time.Minute
)

// A soak runs a farm through one fault after another. In each round clients run actions, a fault
// happens, and all clients get their results; then the farm is idle, and the resources of the
// programs are counted.
//
// First each fault has its turn, and then others, until a third of the time is over. From then on
// only the first worker is killed, so that leaks of the other programs add up. Leaks are evaluated
// in the second half: by then the programs have filled their caches.
type soak struct {
	*soakFarm
	seed   uint64
	period time.Duration // of it all
	begun  time.Time
	random *rand.Rand    // of the faults
	number atomic.Uint64 // of the last action

	mu     sync.Mutex
	right  map[string]int // results, by kind of action; guarded by mu
	again  map[string]int // calls, by why they were tried again; guarded by mu
	faults map[string]int
	usage  usage
}

func TestSoak(t *testing.T) {
	f := programs.New(t, "GOGC=100") // garbage is no leak
	s := &soak{seed: 1, period: soakShort, right: map[string]int{}, again: map[string]int{}, faults: map[string]int{}, usage: usage{}}
	var err, err2 error
	if v := os.Getenv(soakTimeVariable); v != "" {
		s.period, err = time.ParseDuration(v)
	}
	if v := os.Getenv(soakSeedVariable); v != "" {
		s.seed, err2 = strconv.ParseUint(v, 10, 64)
	}
	if err := errors.Join(err, err2); err != nil {
		f.Fatal(err)
	}
	s.random = rand.New(rand.NewPCG(s.seed, 0))
	s.soakFarm = startSoakFarm(f)
	s.begun = time.Now()
	told := s.begun
	for n := 0; (n < soakLeast || time.Since(s.begun) < s.period) && !f.Failed(); n++ {
		late := n >= len(s.soakFarm.faults()) && time.Since(s.begun) > s.period/3
		s.round(n, late)
		s.usage.count(s.soakFarm, late && time.Since(s.begun) > s.period/2)
		if time.Since(told) > 50*time.Second {
			told = time.Now()
			s.tell()
		}
	}
	s.tell()
	text, grown := s.usage.table()
	f.Logf("seed %d, what the programs hold when nothing goes on:\n%s", s.seed, text)
	for _, what := range grown {
		f.Errorf("seed %d: %s has grown", s.seed, what)
	}
	s.stop()
}

// tell prints how far it is.
func (s *soak) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logf("seed %d, %s: %d actions; right %v; tried again %v; faults %v",
		s.seed, time.Since(s.begun).Round(time.Second), s.number.Load(), s.right, s.again, s.faults)
}

// round has clients work for a while, in which a fault happens.
func (s *soak) round(n int, late bool) {
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute+soakPatience)
	defer cancel()
	length := min(max(s.period/40, 2*time.Second), time.Minute)
	end := time.Now().Add(length)
	var clients sync.WaitGroup
	for range soakClients {
		clients.Go(func() {
			for time.Now().Before(end) && !s.Failed() {
				s.act(ctx, s.number.Add(1))
			}
		})
	}
	time.Sleep(time.Duration(s.random.Int64N(int64(length) / 2)))
	faults := slices.DeleteFunc(s.soakFarm.faults(), func(f soakFault) bool { return f.early && late })
	fault := faults[s.random.IntN(len(faults))]
	if n < len(faults) && !late {
		fault = faults[n]
	}
	s.faults[fault.name]++
	fault.do(s.random)
	clients.Wait()
}

// act runs an action, as often as necessary to get its result.
func (s *soak) act(ctx context.Context, number uint64) {
	random := rand.New(rand.NewPCG(s.seed, number))
	kind := pickKind(random)
	a := &soakAction{soakFarm: s.soakFarm, number: number, variant: random.IntN(4), dir: filepath.Join(s.Dir, fmt.Sprint("client-", number))}
	defer os.RemoveAll(a.dir)
	for {
		err := kind.run(a, ctx)
		if err == nil {
			s.mu.Lock()
			s.right[kind.name]++
			s.mu.Unlock()
			return
		}
		why := whyAgain(err)
		if why == "" || ctx.Err() != nil {
			s.Errorf("seed %d, action %d (%s): %v", s.seed, number, kind.name, err)
			return
		}
		s.mu.Lock()
		s.again[why]++
		s.mu.Unlock()
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// whyAgain returns the name of an error that a build tool would not give up at, and that the
// farm may answer with while something befalls it; "" if it is another.
func whyAgain(err error) string {
	switch code := status.Code(err); {
	case errors.Is(err, errWrongResult):
		return ""
	case errors.Is(err, cas.ErrNotFound):
		return codes.NotFound.String()
	case slices.Contains([]codes.Code{codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.FailedPrecondition, codes.NotFound}, code):
		return code.String()
	}
	return ""
}
