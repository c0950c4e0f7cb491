package runner

import (
	"encoding/gob"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
)

// The worker and its launcher talk over a socket pair in gob, which keeps bytes that
// are not UTF-8. Worker: setup, then run and stop; launcher: ready, stuck, done.
type kind byte

const (
	kindSetup kind = iota + 1
	kindReady
	kindRun
	kindStop
	kindStuck
	kindDone
)

// message is every message; which fields count depends on its kind.
type message struct {
	Kind  kind
	ID    uint64        // run, stop, stuck, done: of the command
	Fault string        // ready, done: what went wrong with the machinery
	Place *cgroup.Place // setup; nil: no group
	Run   *runRequest
	Pids  []int // stuck; done: those that could not be killed
	Done  *outcome
}

type runRequest struct {
	Args, Env      []string
	Dir, Root      string
	TempDir        string
	Stdout, Stderr string
	MaxOutputBytes int64
	Grace          time.Duration
}

type outcome struct {
	NotStarted       string // why; then ExitCode counts instead of Status
	ExitCode         int
	Status           syscall.WaitStatus
	Usage            syscall.Rusage
	Started, Ended   time.Time
	OutCut, ErrCut   bool
	EndedBeingKilled bool // a stop was acted upon before the command ended
}

// link is one end of the socket pair. One goroutine receives, any may send.
type link struct {
	f   *os.File
	dec *gob.Decoder

	mu  sync.Mutex // guards enc
	enc *gob.Encoder
}

func newLink(fd int) (*link, error) {
	// Non-blocking, so that Close ends a receive that waits.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "control")
	return &link{f: f, dec: gob.NewDecoder(f), enc: gob.NewEncoder(f)}, nil
}

func (l *link) send(m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enc.Encode(m)
}

func (l *link) receive() (message, error) {
	var m message
	err := l.dec.Decode(&m)
	return m, err
}

func (l *link) close() error { return l.f.Close() }
