package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/disk"
)

// patient has a check that fails, or hangs, when the test says so.
type patient struct {
	mu     sync.Mutex
	fault  error
	hang   chan struct{} // nil: it does not
	visits int
}

func (p *patient) try() error {
	p.mu.Lock()
	fault, hang := p.fault, p.hang
	p.visits++
	p.mu.Unlock()
	if hang != nil {
		<-hang
	}
	return fault
}

func (p *patient) becomes(fault error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

func (p *patient) visited() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.visits
}

// examined runs test in a bubble with a monitor that watches p.
func examined(t *testing.T, test func(t *testing.T, m *Monitor, p *patient)) {
	dir := t.TempDir()
	store, err := disk.Open(filepath.Join(dir, "store"), disk.Options{MaxBytes: 1 << 20})
	check(t, err)
	t.Cleanup(func() { check(t, store.Close()) })
	synctest.Test(t, func(t *testing.T) {
		p := &patient{}
		m, err := New(filepath.Join(dir, "work"), store, nil, []Check{{"heart", p.try}}, zap.NewNop())
		check(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.Watch(ctx)
		}()
		test(t, m, p)
		stop()
		<-ended
		synctest.Wait()
	})
}

// TestFault: a fault that no action has reported is found and ends calls for work. Checks for it
// become rarer and rarer.
func TestFault(t *testing.T) {
	examined(t, func(t *testing.T, m *Monitor, p *patient) {
		call, done := m.Calling(t.Context())
		defer done()
		before := m.Begin()
		p.becomes(syscall.EIO)
		time.Sleep(examineInterval + time.Second)
		if !errors.Is(context.Cause(call), ErrUnfit) {
			t.Errorf("the call goes on: %v", context.Cause(call))
		}
		rest := m.Rests()
		if err := m.Reason(); rest == nil || !errors.Is(err, syscall.EIO) {
			t.Fatalf("the worker rests because of %v", err)
		}
		visits := p.visited()
		time.Sleep(10 * time.Minute)
		if n := p.visited() - visits; n < 10 || n > 16 {
			t.Errorf("it was examined %d times in ten minutes", n)
		}
		p.becomes(nil)
		time.Sleep(mostPause + time.Second)
		select {
		case <-rest:
		default:
			t.Errorf("it rests on because of %v", m.Reason())
		}
		if !before.WasFaulty() || before.WasShort() {
			t.Error("who began before does not know of the fault, or takes it for a want of room")
		}
		if after := m.Begin(); after.WasFaulty() {
			t.Error("who began afterwards takes the worker for faulty")
		}
	})
}

// TestRefusal: a check that a quota refuses what it writes is no fault, but a lack of room until it
// is taken again.
func TestRefusal(t *testing.T) {
	examined(t, func(t *testing.T, m *Monitor, p *patient) {
		before := m.Begin()
		p.becomes(fmt.Errorf("write: %w", syscall.EDQUOT))
		time.Sleep(examineInterval + time.Second)
		if m.Rests() == nil || !errors.Is(m.Reason(), syscall.EDQUOT) {
			t.Errorf("the worker rests because of %v", m.Reason())
		}
		if before.WasFaulty() || before.HadSpace() || m.Begin().HadSpace() {
			t.Error("who is there takes it for a fault, or for room")
		}
		p.becomes(nil)
		time.Sleep(2 * leastPause)
		if m.Rests() != nil || !m.Begin().HadSpace() {
			t.Errorf("the worker rests on because of %v", m.Reason())
		}
	})
}

// TestComplaint: an action that failed has the worker examined at once, not by an examination that
// had begun before.
func TestComplaint(t *testing.T) {
	examined(t, func(t *testing.T, m *Monitor, p *patient) {
		action := m.Begin()
		hang := make(chan struct{})
		p.hang = hang
		old, _ := m.begin()
		synctest.Wait() // that has asked
		p.mu.Lock()
		p.fault, p.hang = syscall.EROFS, nil
		p.mu.Unlock()
		time.AfterFunc(time.Second, func() { close(hang) })
		if !action.WasFaulty() {
			t.Error("no fault was found")
		}
		if <-old.ended; old.err != nil {
			t.Errorf("the first examination found %v", old.err)
		}
	})
}

// TestHangingDisk: a check that does not end is a fault, until it has.
func TestHangingDisk(t *testing.T) {
	examined(t, func(t *testing.T, m *Monitor, p *patient) {
		hang := make(chan struct{})
		p.mu.Lock()
		p.hang = hang
		p.mu.Unlock()
		if err := m.Examine(); err == nil || m.Rests() == nil {
			t.Errorf("found %v", err)
		}
		p.mu.Lock()
		p.hang = nil
		p.mu.Unlock()
		close(hang)
		time.Sleep(5 * time.Second)
		if err := m.Reason(); err != nil {
			t.Error(err)
		}
	})
}

// TestBlame: if actions fail again and again although no check finds a fault, the worker rests for
// longer and longer.
func TestBlame(t *testing.T) {
	examined(t, func(t *testing.T, m *Monitor, _ *patient) {
		own := fmt.Errorf("run: %w", errors.Join(errors.New("odd"), &fs.PathError{Op: "open", Path: m.dir + "/1/stdout", Err: syscall.ENOENT}))
		var last time.Duration
		for range 4 {
			if !m.Blame(own, m.dir) {
				t.Fatal("it is the action's fault")
			}
			start := time.Now()
			<-m.Rests()
			if rested := time.Since(start); rested <= last {
				t.Errorf("it rests for %s after %s", rested, last)
			} else {
				last = rested
			}
		}
		time.Sleep(time.Hour)
		m.Blame(own, m.dir)
		start := time.Now()
		<-m.Rests()
		if rested := time.Since(start); rested >= last {
			t.Errorf("an hour later it rests for %s", rested)
		}
	})
}

func TestIsOwn(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nothing":          {nil, false},
		"below":            {&fs.PathError{Op: "open", Path: "/d/work/x", Err: syscall.EIO}, true},
		"the folder":       {&fs.PathError{Op: "open", Path: "/d/work", Err: syscall.ENOENT}, true},
		"link":             {&os.LinkError{Op: "rename", Old: "/d/cas/x", New: "/e", Err: syscall.EROFS}, true},
		"joined":           {errors.Join(errors.New("a"), fmt.Errorf("b: %w", &fs.PathError{Path: "/d/cas/x", Err: syscall.EROFS})), true},
		"beside":           {&fs.PathError{Op: "open", Path: "/d/worker", Err: syscall.EIO}, false},
		"in a root":        {&fs.PathError{Op: "open", Path: "out/x", Err: syscall.ENOENT}, false},
		"too long a name":  {&fs.PathError{Op: "open", Path: "/d/work/x", Err: syscall.ENAMETOOLONG}, false},
		"no path":          {syscall.EIO, false},
		"somebody's words": {errors.New("open /d/work: input/output error"), false},
	} {
		if got := isOwn(c.err, []string{"/d/work", "/d/cas"}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
