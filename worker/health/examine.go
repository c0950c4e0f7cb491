package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/forerunner-build/forerunner/paths"
)

// patience is how long a check may take before it counts as failed.
const patience = 10 * time.Second

var errSlow = fmt.Errorf("no answer from the worker's own disks and mounts within %s", patience)

// A Check tests one thing that actions need.
type Check struct {
	What string
	Try  func() error
}

// An examination is one call of all checks.
type examination struct {
	ended chan struct{}
	err   error // of the first that failed; set before ended is closed
}

func (m *Monitor) examinationDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.under == nil && now.After(m.due)
}

// begin begins an examination, or returns the one in progress.
func (m *Monitor) begin() (_ *examination, isNew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.under == nil {
		m.under, isNew = &examination{ended: make(chan struct{})}, true
		go m.run(m.under)
	}
	return m.under, isNew
}

func (m *Monitor) run(e *examination) {
	var refusal error
	for _, c := range m.checks {
		err := c.Try()
		switch {
		case errors.Is(err, syscall.ENOSPC):
			continue // that is the business of look, and may be an action's doing
		case errors.Is(err, syscall.EDQUOT): // so may this be, but look does not see every quota
			refusal = cmp.Or(refusal, fmt.Errorf("%s: %w", c.What, err))
			continue
		}
		if err != nil {
			e.err = fmt.Errorf("%s: %w", c.What, err)
			break
		}
	}
	m.learn(func() { m.refusal = refusal })
	m.found(e.err)
	m.mu.Lock()
	m.under = nil
	m.mu.Unlock()
	close(e.ended)
}

// found records the fault of the worker, and how long it lasts before the next examination.
func (m *Monitor) found(fault error) {
	m.learn(func() {
		now := time.Now()
		switch {
		case m.fault != nil && now.Before(m.due): // it continues to rest
			m.fault = cmp.Or(fault, m.fault)
		case fault != nil:
			m.fault, m.due = fault, now.Add(m.backoff.rest(now))
		default:
			m.fault, m.due = nil, now.Add(examineInterval)
			if m.refusal != nil {
				m.due = now.Add(leastPause)
			}
			m.backoff.passed()
		}
	})
}

// Examine returns the present fault of the worker; nil if all checks succeed. A check that does not
// end in time has failed.
func (m *Monitor) Examine() error {
	late, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e, isNew := m.begin()
	err := e.wait(late)
	if !isNew && err == nil { // it may have run before the caller's failure
		e, _ = m.begin()
		err = e.wait(late)
	}
	if errors.Is(err, errSlow) {
		m.found(err)
	}
	return err
}

// wait returns the result of e, or errSlow when late ends.
func (e *examination) wait(late context.Context) error {
	select {
	case <-e.ended:
		return e.err
	case <-late.Done():
		return errSlow
	}
}

// Blame reports whether err is about the worker's own files and folders, below one of dirs: no
// action can cause that, so another worker must run the action that failed. The worker then pauses
// for a while, each time longer.
func (m *Monitor) Blame(err error, dirs ...string) bool {
	if !isOwn(err, dirs) {
		return false
	}
	m.mu.Lock()
	m.backoff.blamed = true
	m.mu.Unlock()
	m.found(fmt.Errorf("own files: %w", err))
	return true
}

// ownFaults are errors of a file system that has failed, or that another process has changed.
var ownFaults = []error{
	syscall.EROFS, syscall.EIO, syscall.ENOENT, syscall.ESTALE, syscall.ENOTDIR, syscall.EUCLEAN, syscall.ENODEV,
	syscall.ENXIO, syscall.ENOTCONN, syscall.EMFILE, syscall.ENFILE,
}

// isOwn looks for an error that names a file below one of dirs. Paths within input roots are
// relative.
func isOwn(err error, dirs []string) bool {
	var path string
	switch e := err.(type) {
	case nil:
		return false
	case *fs.PathError:
		path = e.Path
	case *os.LinkError:
		path = e.Old
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), func(err error) bool { return isOwn(err, dirs) })
	default:
		return isOwn(errors.Unwrap(err), dirs)
	}
	return slices.ContainsFunc(ownFaults, func(fault error) bool { return errors.Is(err, fault) }) &&
		slices.ContainsFunc(dirs, func(dir string) bool { return paths.Below(filepath.Clean(path), filepath.Clean(dir)) })
}
