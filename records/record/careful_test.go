package record

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// oneStore returns what the test sets, and counts the calls.
type oneStore struct {
	do    func(context.Context) error
	calls int
}

func (s *oneStore) Get(ctx context.Context, _ Key) ([]byte, error) {
	s.calls++
	return []byte("x"), s.do(ctx)
}

func (s *oneStore) Put(ctx context.Context, _ Key, _ []byte) error {
	s.calls++
	return s.do(ctx)
}

func works(context.Context) error { return nil }

func fails(context.Context) error { return errors.New("no disk") }

func hangs(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func newCareful(s Hints) (*Careful, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.InfoLevel)
	return NewCareful(s, CarefulOptions{
		Timeout: 100 * time.Millisecond, Logger: zap.New(core), Subject: "things", Without: "all goes on",
	}), logs
}

func TestFailuresAreKeptAway(t *testing.T) {
	for name, do := range map[string]func(context.Context) error{"fails": fails, "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &oneStore{do: do}
				c, logs := newCareful(s)
				expect := func(calls, lines int, want bool) {
					t.Helper()
					if _, ok := c.Get(t.Context(), Key{Bucket: "a"}); ok != want {
						t.Errorf("get: %v, want %v", ok, want)
					}
					if s.calls != calls || logs.Len() != lines {
						t.Errorf("%d calls, %d lines; want %d, %d: %v", s.calls, logs.Len(), calls, lines, logs.All())
					}
				}
				expect(1, 1, false)
				expect(1, 1, false) // it is not called
				if c.Put(t.Context(), Key{Bucket: "a"}, nil) || s.calls != 2 || logs.Len() != 2 {
					t.Errorf("put is a separate part: %d calls, %v", s.calls, logs.All())
				}
				time.Sleep(time.Second)
				expect(3, 2, false)
				s.do = works
				expect(3, 2, false)
				time.Sleep(time.Second)
				expect(4, 3, true)
				expect(5, 3, true)
			})
		})
	}
}

// TestOneTriesForAll has many callers of a store that hangs. At most one of them waits for it at a
// time, and for at most a tenth of the time.
func TestOneTriesForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{takes: time.Hour}
		c, logs := newCareful(s)
		c.options.Timeout = 2 * time.Second
		if _, ok := c.Get(t.Context(), Key{}); ok || s.calls.Load() != 1 {
			t.Fatal("a store that hangs works")
		}
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() {
				for range 2000 {
					time.Sleep(10 * time.Millisecond)
					_, _ = c.Get(t.Context(), Key{})
				}
			})
		}
		began := time.Now()
		callers.Wait()
		if calls, most := s.calls.Load(), int64(time.Since(began)/(20*time.Second))+1; calls > most {
			t.Errorf("the store was asked %d times in %s, want at most %d", calls, time.Since(began), most)
		}
		s.takes = 0
		time.Sleep(mostPatience)
		if _, ok := c.Get(t.Context(), Key{}); !ok || logs.Len() != 2 {
			t.Errorf("works again: %v, %v", ok, logs.All())
		}
	})
}

// slowStore fails after a delay.
type slowStore struct {
	takes time.Duration
	calls atomic.Int64
}

func (s *slowStore) Get(ctx context.Context, _ Key) ([]byte, error) {
	s.calls.Add(1)
	select {
	case <-time.After(s.takes):
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slowStore) Put(ctx context.Context, k Key, _ []byte) error {
	_, err := s.Get(ctx, k)
	return err
}

// TestShortDeadlineSaysNothing has callers whose deadline is too short for any call.
func TestShortDeadlineSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, logs := newCareful(&slowStore{takes: 900 * time.Microsecond})
		for _, left := range []time.Duration{-time.Second, 500 * time.Microsecond} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			if _, ok := c.Get(ctx, Key{}); ok {
				t.Error("a call without time worked")
			}
			cancel()
		}
		if _, ok := c.Get(t.Context(), Key{}); !ok || logs.Len() != 0 {
			t.Errorf("the next caller: %v, %v", ok, logs.All())
		}
	})
}

// TestInvalidRecordSaysNothing has a record that the store refuses. This must not affect other
// records.
func TestInvalidRecordSaysNothing(t *testing.T) {
	s := &oneStore{do: func(context.Context) error { return fmt.Errorf("put: %w", ErrInvalid) }}
	c, logs := newCareful(s)
	if c.Put(t.Context(), Key{}, nil) {
		t.Error("the store took it")
	}
	s.do = works
	if !c.Put(t.Context(), Key{}, nil) || logs.Len() != 0 {
		t.Errorf("the next one was not taken: %v", logs.All())
	}
}

func TestNoRecordIsNoFailure(t *testing.T) {
	c, logs := newCareful(&oneStore{do: func(context.Context) error { return ErrNotFound }})
	if value, ok := c.Get(t.Context(), Key{}); value != nil || !ok || logs.Len() != 0 {
		t.Errorf("%q, %v, %v", value, ok, logs.All())
	}
}

// TestCallersEndSaysNothing has a caller that gives up. The next caller must call the store at
// once.
func TestCallersEndSaysNothing(t *testing.T) {
	s := &oneStore{do: hangs}
	c, logs := newCareful(s)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, ok := c.Get(ctx, Key{}); ok {
		t.Error("a call that was given up worked")
	}
	s.do = works
	if _, ok := c.Get(t.Context(), Key{}); !ok || logs.Len() != 0 {
		t.Errorf("%v, %v", ok, logs.All())
	}
}

// TestLateSuccess: of two concurrent calls one fails. That the other succeeds after that does not
// show that the store works again.
func TestLateSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, logs := newCareful(nil)
		ended := make(chan bool)
		go func() {
			ended <- c.Try(t.Context(), "find", "a", func(context.Context) error {
				time.Sleep(2 * time.Millisecond)
				return nil
			})
		}()
		synctest.Wait()
		time.Sleep(time.Millisecond)
		c.Try(t.Context(), "find", "a", fails)
		if !<-ended {
			t.Error("a success is reported as a failure")
		}
		if c.Try(t.Context(), "find", "a", works) || logs.Len() != 1 {
			t.Errorf("the store is called although it has failed, or: %v", logs.All())
		}
		time.Sleep(patience)
		if !c.Try(t.Context(), "find", "a", works) || logs.Len() != 2 {
			t.Errorf("the store is not called after the pause, or: %v", logs.All())
		}
	})
}
