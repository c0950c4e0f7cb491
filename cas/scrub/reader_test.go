package scrub

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestCosts: a file that did not need a check costs nothing. Any other file costs at least as much
// as opening one.
func TestCosts(t *testing.T) {
	for name, c := range map[string]struct {
		verdict    Verdict
		read, cost int64
	}{
		"nothing to read":       {Passed, 0, 0},
		"gone while it is read": {Passed, 100, fileCost},
		"empty":                 {Whole, 0, fileCost},
		"cannot be opened":      {Damaged, 0, fileCost},
		"large":                 {Whole, 1 << 20, 1 << 20},
	} {
		r := Reader{bytes: c.read, debt: float64(c.read)}
		if got := r.settle(c.verdict); got != c.cost || r.debt != float64(c.cost) {
			t.Errorf("%s: it costs %d, of which %v is to be waited for; want %d", name, got, r.debt, c.cost)
		}
	}
}

// TestRests: the time that passed since the last rest counts, unless it is so long that nothing was
// read then.
func TestRests(t *testing.T) {
	const pace = pieceBytes // a piece in each second
	for name, c := range map[string]struct{ idle, rests time.Duration }{
		"none":        {0, 2 * time.Second},
		"while read":  {waitStep / 2, 2*time.Second - waitStep/2},
		"just before": {waitStep - 1, 2*time.Second - waitStep},
		"idle":        {waitStep, 2 * time.Second},
		"long idle":   {time.Hour, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Reader{pace: func() float64 { return pace }, debt: 2 * pieceBytes, last: time.Now()}
				time.Sleep(c.idle)
				began := time.Now()
				if err := r.rest(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.rests-time.Millisecond || took > c.rests+time.Millisecond {
					t.Errorf("it rests for %v, want %v", took, c.rests)
				}
			})
		})
	}
}

// TestNeeded: after a pause the reader asks whether the file is still needed. It continues if it
// is, or if that is unknown.
func TestNeeded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 4*pieceBytes), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		needed func() bool
		read   int64
		err    error
	}{
		"needed":       {func() bool { return true }, 4 * pieceBytes, nil},
		"nobody knows": {nil, 4 * pieceBytes, nil},
		"not any more": {func() bool { return false }, pieceBytes, ErrGone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer file.Close()
				r := Reader{pace: func() float64 { return pieceBytes }, last: time.Now()}
				var got strings.Builder
				n, err := r.Copy(t.Context(), &got, file, c.needed)
				if !errors.Is(err, c.err) || n != c.read || int64(got.Len()) != n {
					t.Errorf("%d bytes are read, %v; want %d, %v", n, err, c.read, c.err)
				}
			})
		})
	}
}

// TestRestOfLittle: the pause for less than a piece, or for time already idle, is skipped. Idle
// time that is too old does not pay for later reads.
func TestRestOfLittle(t *testing.T) {
	const pace = 4 * pieceBytes
	for name, c := range map[string]struct {
		debt        float64
		idle, rests time.Duration
		next        time.Duration // that three more pieces rest
	}{
		"less than a piece": {pieceBytes - 1, 0, 0, time.Second},
		"paid":              {2 * pieceBytes, 600 * time.Millisecond, 0, 650 * time.Millisecond},
		"paid more":         {2 * pieceBytes, 900 * time.Millisecond, 0, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := Reader{pace: func() float64 { return pace }, debt: c.debt, last: time.Now()}
				time.Sleep(c.idle)
				for _, want := range []time.Duration{c.rests, c.next} {
					began := time.Now()
					if err := r.rest(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					took := time.Since(began)
					if want == 0 && took != 0 || took < want-time.Microsecond || took > want+time.Microsecond {
						t.Errorf("it rests for %v, want %v", took, want)
					}
					r.debt += 3 * pieceBytes
				}
			})
		})
	}
}

// TestRestEndsWithItsContext, however much is to be waited for.
func TestRestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, r := range map[string]Reader{
		"nothing": {},
		"paid":    {debt: pieceBytes, last: time.Now().Add(-waitStep / 2)},
		"much":    {debt: 1 << 40},
	} {
		r.pace = func() float64 { return 8 * pieceBytes }
		if err := r.rest(ctx, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCopyFails as its file or its writer does, and at once.
func TestCopyFails(t *testing.T) {
	file, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := Reader{pace: func() float64 { return pieceBytes }}
	if _, err := r.Copy(t.Context(), io.Discard, file, nil); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("of a folder: %v", err)
	}
	zero, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer zero.Close()
	reader, writer := io.Pipe()
	_ = reader.CloseWithError(errors.New("full"))
	if n, err := r.Copy(t.Context(), writer, zero, func() bool { return false }); n != 0 || err == nil || errors.Is(err, ErrGone) {
		t.Errorf("to a writer that fails: %d, %v", n, err)
	}
}

// TestWhatIsTold of a pass: its end, as a warning if something was damaged, and each shard that
// cannot be listed.
func TestWhatIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		content, unlisted string
		warnings          []string
		told              []string
	}{
		"whole":    {"fine", "", nil, []string{"the store was scrubbed"}},
		"damaged":  {"bad", "", []string{"the store was scrubbed"}, nil},
		"unlisted": {"fine", "b", []string{"cannot list files of the store", "the store was scrubbed"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			target := newFakeTarget(t)
			target.add(t, "a", "file", 4)
			target.add(t, "b", "other", 4)
			target.unlisted = c.unlisted
			if err := os.WriteFile(filepath.Join(target.dir, "file"), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newScrubber(t, Options{Logger: zap.New(core)}, target)
			s.begin()
			if err := s.pass(context.Background()); err != nil {
				t.Fatal(err)
			}
			s.end()
			texts := func(level func(observer.LoggedEntry) bool) (all []string) {
				for _, e := range logs.Filter(level).All() {
					all = append(all, e.Message)
				}
				return all
			}
			warned := texts(func(e observer.LoggedEntry) bool { return e.Level == zap.WarnLevel })
			told := texts(func(e observer.LoggedEntry) bool { return e.Level == zap.InfoLevel })
			if strings.Join(warned, "|") != strings.Join(c.warnings, "|") || strings.Join(told, "|") != strings.Join(c.told, "|") {
				t.Errorf("warned of %q, told of %q", warned, told)
			}
		})
	}
}
