package records

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/records/redistest"
)

// A link is one program's connection to a shared store.
type link struct {
	Durable
	mu    sync.Mutex
	cut   bool
	stuck chan struct{} // closed when delayed requests arrive, long after the sender gave up
}

func (l *link) set(cut bool, stuck chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.stuck = cut, stuck
}

func (l *link) state() (cut bool, stuck chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut, l.stuck
}

func (l *link) pass(ctx context.Context, late func()) error {
	cut, stuck := l.state()
	switch {
	case cut:
		return errors.New("no route")
	case stuck == nil:
		return nil
	}
	go func() {
		<-stuck
		late()
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

func (l *link) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := l.pass(ctx, func() {}); err != nil {
		return nil, err
	}
	return l.Durable.Get(ctx, k)
}

func (l *link) CompareAndSwap(ctx context.Context, k Key, old, value []byte) error {
	late := func() { _ = l.Durable.CompareAndSwap(context.Background(), k, old, value) }
	if err := l.pass(ctx, late); err != nil {
		return err
	}
	return l.Durable.CompareAndSwap(ctx, k, old, value)
}

// A contest is a lease that several programs want, each whenever it does not have it.
type contest struct {
	*testing.T
	store *Memory
	wait  sync.WaitGroup

	mu     sync.Mutex
	holder string
	since  time.Time
	term   uint64
	terms  int
}

func newContest(t *testing.T) *contest { return &contest{T: t, store: NewMemory(0)} }

// join adds a program that wants the lease until ctx ends.
func (c *contest) join(ctx context.Context, name string, o LeaseOptions) *link {
	way := &link{Durable: c.store}
	o.Holder = name
	lease := NewLease(way, "farm", o)
	c.wait.Go(func() {
		for ctx.Err() == nil {
			err := lease.Hold(ctx, func(ctx context.Context, term uint64) error {
				c.begin(name, term)
				<-ctx.Done()
				c.end(name)
				return nil
			})
			if ctx.Err() == nil && !errors.Is(err, ErrLeaseLost) {
				c.Errorf("%s: %v", name, err)
			}
		}
	})
	return way
}

func (c *contest) begin(name string, term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder != "" {
		c.Errorf("%s begins while %s serves", name, c.holder)
	}
	if term <= c.term {
		c.Errorf("%s has term %d, there was %d", name, term, c.term)
	}
	c.holder, c.term, c.since = name, term, time.Now()
	c.terms++
}

func (c *contest) end(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder == name {
		c.holder = ""
	}
}

// expect fails the test unless name ("" for none) has been serving for at least that long.
func (c *contest) expect(name string, atLeast time.Duration) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holder != name || name != "" && time.Since(c.since) < atLeast {
		c.Errorf("%q serves since %s, want %q", c.holder, time.Since(c.since), name)
	}
}

// now returns the program that serves, and the number of terms so far.
func (c *contest) now() (holder string, terms int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holder, c.terms
}

// contested runs a test in which a holds the lease and b waits.
func contested(t *testing.T, test func(c *contest, a, b *link, endA func())) {
	synctest.Test(t, func(t *testing.T) {
		c := newContest(t)
		ctx, cancel := context.WithCancel(t.Context())
		ctxA, endA := context.WithCancel(ctx)
		a := c.join(ctxA, "a", LeaseOptions{})
		time.Sleep(time.Second)
		b := c.join(ctx, "b", LeaseOptions{})
		time.Sleep(time.Hour)
		c.expect("a", time.Hour)
		test(c, a, b, endA)
		endA()
		cancel()
		c.wait.Wait()
	})
}

func TestLeaseIsGivenUp(t *testing.T) {
	contested(t, func(c *contest, _, _ *link, endA func()) {
		endA()
		time.Sleep(3 * time.Second)
		c.expect("b", 0)
	})
}

// TestLeaseThroughPartition disconnects the holder. It must stop before the other program starts.
func TestLeaseThroughPartition(t *testing.T) {
	contested(t, func(c *contest, a, b *link, _ func()) {
		a.set(true, nil)
		time.Sleep(5 * time.Second)
		c.expect("a", 0)
		time.Sleep(4 * time.Second)
		c.expect("", 0)
		time.Sleep(6 * time.Second)
		c.expect("b", 0)
		a.set(false, nil)
		time.Sleep(time.Hour)
		c.expect("b", time.Hour)
		// Disconnecting a waiting program has no effect.
		a.set(true, nil)
		time.Sleep(time.Hour)
		a.set(false, nil)
		time.Sleep(time.Hour)
		c.expect("b", 2*time.Hour)
	})
}

// TestLeaseThroughPause has the store hang for shorter and for longer than a lease lasts. The store
// executes delayed requests when it continues.
func TestLeaseThroughPause(t *testing.T) {
	contested(t, func(c *contest, a, b *link, _ func()) {
		pause := func(d time.Duration) {
			stuck := make(chan struct{})
			a.set(false, stuck)
			b.set(false, stuck)
			time.Sleep(d)
			a.set(false, nil)
			b.set(false, nil)
			close(stuck)
		}
		pause(5 * time.Second)
		time.Sleep(time.Minute)
		c.expect("a", time.Hour)
		pause(time.Minute)
		c.expect("", 0)
		time.Sleep(time.Minute)
		if holder, terms := c.now(); holder == "" || terms != 2 {
			c.Errorf("%q serves after %d terms", holder, terms)
		}
	})
}

// forget drops a record, like a store that returns without its latest writes.
func (m *Memory) forget(k Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b := m.buckets[k.Bucket]; b != nil {
		b.Put(k, nil, 0) // no value: no record
	}
}

// TestLeaseThroughAmnesia has the store lose its data, as after a fail-over.
func TestLeaseThroughAmnesia(t *testing.T) {
	contested(t, func(c *contest, _, _ *link, _ func()) {
		k := NewLease(c.store, "farm", LeaseOptions{}).key
		for range 10 {
			c.store.forget(k)
			time.Sleep(time.Minute)
		}
		old, err := c.store.Get(c.Context(), k)
		if err != nil {
			c.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := c.store.Put(c.Context(), k, old); err != nil {
			c.Error(err)
		}
		time.Sleep(time.Minute)
		c.expect("a", time.Hour)
	})
}

// TestLeaseThroughClockJump has the holder's machine sleep, so that its timers stood still.
func TestLeaseThroughClockJump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newContest(t)
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		var ahead time.Duration
		c.join(ctx, "a", LeaseOptions{wall: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(ahead)
		}})
		time.Sleep(time.Minute)
		jump := func(d time.Duration) {
			synctest.Wait() // otherwise a renewal might be in progress, which would succeed after the jump
			mu.Lock()
			defer mu.Unlock()
			ahead = d
		}
		jump(-time.Hour) // back: the lease is still renewed
		time.Sleep(time.Minute)
		c.expect("a", 2*time.Minute)
		jump(time.Hour)
		time.Sleep(10 * time.Second)
		if _, terms := c.now(); terms != 2 {
			t.Errorf("%d terms, want 2: a program that slept may have lost the lease", terms)
		}
		cancel()
		c.wait.Wait()
	})
}

// TestLeaseThroughAnything disconnects and connects all links at random. contest.begin checks that
// never two programs serve.
func TestLeaseThroughAnything(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, random := newContest(t), rand.New(rand.NewPCG(seed, 1))
				ctx, cancel := context.WithCancel(t.Context())
				var links []*link
				for i := range 4 {
					links = append(links, c.join(ctx, fmt.Sprint(i), LeaseOptions{}))
				}
				stuck := make(chan struct{})
				for range 500 {
					time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
					l := links[random.IntN(len(links))]
					switch random.IntN(4) {
					case 0:
						l.set(true, nil)
					case 1:
						l.set(false, stuck)
					case 2:
						l.set(false, nil)
					case 3:
						close(stuck)
						stuck = make(chan struct{})
						for _, l := range links {
							l.set(false, nil)
						}
					}
				}
				close(stuck)
				for _, l := range links {
					l.set(false, nil)
				}
				time.Sleep(time.Minute)
				if holder, terms := c.now(); holder == "" || terms < 3 {
					t.Errorf("%q serves after %d terms", holder, terms)
				}
				cancel()
				c.wait.Wait()
			})
		})
	}
}

// TestLeaseReturnsWhatServeDoes has the holder's serve return an error, after which the holder is
// gone.
func TestLeaseReturnsWhatServeDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, broken := NewLease(NewMemory(0), "farm", LeaseOptions{}), errors.New("broken")
		for _, want := range []error{broken, nil} {
			start := time.Now()
			err := l.Hold(t.Context(), func(context.Context, uint64) error { return want })
			if !errors.Is(err, want) || time.Since(start) > 5*time.Second {
				t.Errorf("%v after %s, want %v", err, time.Since(start), want)
			}
		}
	})
}

// TestLeaseIsLostWhateverServeReturns disconnects the store until the lease ends, upon which serve
// returns an error of its own.
func TestLeaseIsLostWhateverServeReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		way := &link{Durable: NewMemory(0)}
		l, broken := NewLease(way, "farm", LeaseOptions{}), errors.New("broken")
		err := l.Hold(t.Context(), func(ctx context.Context, _ uint64) error {
			if !l.Holds() {
				t.Error("it does not hold its lease")
			}
			way.set(true, nil)
			<-ctx.Done()
			if l.Holds() {
				t.Error("it holds a lost lease")
			}
			return fmt.Errorf("%w: %w", broken, ctx.Err())
		})
		if !errors.Is(err, ErrLeaseLost) || !errors.Is(err, broken) {
			t.Errorf("%v, want that the lease is lost, and what serve says", err)
		}
	})
}

// TestLeaseIsTaken checks that a program that learns that another one has the lease does not hold
// it, even if its own time has not run out.
func TestLeaseIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory(0)
		l := NewLease(store, "farm", LeaseOptions{})
		_ = l.Hold(t.Context(), func(ctx context.Context, term uint64) error {
			if err := store.Put(ctx, l.key, fmt.Appendf(nil, `{"term": %d, "holder": "another one"}`, term+1)); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			if l.Holds() {
				t.Error("it holds another program's lease")
			}
			return nil
		})
	})
}

// TestLeaseWhileServeEnds checks that a program that is being stopped still holds the lease until
// another program could have it.
func TestLeaseWhileServeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLease(NewMemory(0), "farm", LeaseOptions{})
		ctx, stop := context.WithCancel(t.Context())
		var holds []bool
		_ = l.Hold(ctx, func(ctx context.Context, _ uint64) error {
			stop()
			<-ctx.Done()
			for range 2 {
				holds = append(holds, l.Holds())
				time.Sleep(DefaultLeaseDuration)
			}
			return nil
		})
		if !slices.Equal(append(holds, l.Holds()), []bool{true, false, false}) {
			t.Errorf("it holds it: %t", holds)
		}
	})
}

// TestLeaseGoesToOthersFirst has a holder release the lease and want it again at once, while
// another program waits: they alternate. Without another program, the first one gets the lease
// again.
func TestLeaseGoesToOthersFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory(0)
		a, b := NewLease(store, "farm", LeaseOptions{}), NewLease(store, "farm", LeaseOptions{})
		var holders []string
		hold := func(l *Lease, name string) {
			if err := l.Hold(t.Context(), func(context.Context, uint64) error {
				holders = append(holders, name)
				time.Sleep(time.Minute) // the other program is waiting by then
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		var group sync.WaitGroup
		group.Go(func() {
			for range 4 {
				hold(a, "a")
			}
		})
		group.Go(func() {
			time.Sleep(time.Second)
			for range 2 {
				hold(b, "b")
			}
		})
		group.Wait()
		if got := strings.Join(holders, ""); got != "ababaa" {
			t.Errorf("the holders were %s in turn", got)
		}
	})
}

// TestLeaseLacks: a program that waits knows whether another one has the lease, or the store is away.
func TestLeaseLacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := NewMemory(0)
		line := &link{Durable: store}
		a := NewLease(store, "farm", LeaseOptions{Holder: "one"})
		b := NewLease(line, "farm", LeaseOptions{Holder: "two"})
		check := func(l *Lease, want string) {
			t.Helper()
			time.Sleep(DefaultLeaseDuration)
			if got := fmt.Sprint(l.Lacks()); !strings.Contains(got, want) {
				t.Errorf("lacks: %s, want %s", got, want)
			}
		}
		check(b, "not been read")
		ctx, stop := context.WithCancel(t.Context())
		serve := func(ctx context.Context, _ uint64) error { <-ctx.Done(); return nil }
		var group sync.WaitGroup
		first, leave := context.WithCancel(ctx)
		group.Go(func() { _ = a.Hold(first, serve) })
		check(a, "<nil>")
		group.Go(func() { _ = b.Hold(ctx, serve) })
		check(b, "one has it")
		line.set(true, nil)
		check(b, "cannot be read: no route")
		line.set(false, nil)
		check(b, "one has it")
		leave()
		check(a, "given up")
		check(b, "<nil>")
		line.set(true, nil)
		check(b, "lost")
		stop()
		group.Wait()
	})
}

// TestLeaseInRedis has two programs want a lease. The holder dies, and the server is stopped.
func TestLeaseInRedis(t *testing.T) {
	server := redistest.Start(t)
	c := newContest(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer c.wait.Wait()
	defer cancel()
	names := []string{"a", "b"}
	for _, name := range names {
		store := openRedis(t, "redis://"+server.Addr, RedisOptions{Timeout: 200 * time.Millisecond})
		l := NewLease(store, "farm", LeaseOptions{Holder: name, Duration: time.Second})
		c.wait.Go(func() {
			for ctx.Err() == nil {
				_ = l.Hold(ctx, func(ctx context.Context, term uint64) error {
					c.begin(name, term)
					defer c.end(name)
					<-ctx.Done()
					return nil
				})
			}
		})
	}
	serves := func() bool {
		holder, _ := c.now()
		return holder != ""
	}
	redistest.Eventually(t, "one serves", serves)
	server.Pause()
	redistest.Eventually(t, "nobody serves", func() bool { return !serves() })
	server.Resume()
	redistest.Eventually(t, "one serves again", serves)
}
