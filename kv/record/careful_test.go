package record

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// oneStore does with every call what it is told, and counts them.
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

func newCareful(s Store) (*Careful, *observer.ObservedLogs) {
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
				expect(1, 1, false) // it is left alone
				if c.Put(t.Context(), Key{Bucket: "a"}, nil) || s.calls != 2 || logs.Len() != 2 {
					t.Errorf("a put is another part: %d calls, %v", s.calls, logs.All())
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

func TestNoRecordIsNoFailure(t *testing.T) {
	c, logs := newCareful(&oneStore{do: func(context.Context) error { return ErrNotFound }})
	if value, ok := c.Get(t.Context(), Key{}); value != nil || !ok || logs.Len() != 0 {
		t.Errorf("%q, %v, %v", value, ok, logs.All())
	}
}

// TestCallersEndSaysNothing has a caller that gives up, whose store is asked again at once.
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
