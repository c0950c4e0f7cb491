package runner

import (
	"bytes"
	"encoding/gob"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/sandbox"
)

// The worker and its launcher talk over a socket pair in gob, which keeps bytes that are not UTF-8.
// Worker: setup, then run; launcher: ready, stuck, done. Descriptors of open files travel beside a
// run: the launcher may live among other mounts, where paths of the worker lead nowhere. The worker
// stops commands by a second pair (writeStop): the thread that gets messages may be busy with the
// start of a command.
type kind byte

const (
	kindSetup kind = iota + 1
	kindReady
	kindRun
	kindStuck
	kindDone
)

// message is every message; which fields count depends on its kind.
type message struct {
	Kind      kind
	ID        uint64           // run, stuck, done: of the command
	Fault     string           // ready, done: what went wrong with the machinery
	NoSandbox bool             // ready: that was the sandbox
	NotApart  string           // ready: why commands may share sockets with others
	Slot      *cgroup.Handle   // setup; nil: no group
	Sandbox   *sandbox.Options // setup; nil: none
	Run       *runRequest
	Pids      []int // stuck; done: those that could not be killed
	Done      *outcome

	// Files says what the descriptors are for that travel with the message. files are the
	// descriptors: the sender's or the receiver's own.
	Files []fileKind
	files []int
}

// fileKind says what a descriptor is for.
type fileKind byte

const (
	fileStdout fileKind = iota + 1
	fileStderr
	fileMount     // those of runRequest.Mounts, in their order
	fileNamespace // of users
	fileTerminals // setup: sandbox.Options.Terminals
)

func (m *message) addFile(k fileKind, fd int) {
	m.Files, m.files = append(m.Files, k), append(m.files, fd)
}

// file returns the first descriptor of that kind, or -1.
func (m *message) file(k fileKind) int {
	if i := slices.Index(m.Files, k); i >= 0 {
		return m.files[i]
	}
	return -1
}

// mounts returns the mounts of the command, with the received descriptors.
func (m *message) mounts() []sandbox.Mount {
	mounts := slices.Clone(m.Run.Mounts)
	next := 0
	for i, k := range m.Files {
		if k == fileMount && next < len(mounts) {
			mounts[next].FD = m.files[i]
			next++
		}
	}
	return mounts[:next]
}

// take returns a file; the caller must close it.
func (m *message) take(k fileKind) int {
	fd := m.file(k)
	if fd >= 0 {
		m.files[slices.Index(m.Files, k)] = -1
	}
	return fd
}

// closeFiles closes the descriptors that were not taken; nothing was written through them here.
func (m *message) closeFiles() {
	for i, fd := range m.files {
		if fd >= 0 {
			_ = unix.Close(fd)
			m.files[i] = -1
		}
	}
}

type runRequest struct {
	Args, Env      []string
	Dir, Root      string // as the command sees them
	MaxOutputBytes int64
	Grace          time.Duration
	Nice           int
	Policy         sandbox.Policy
	Mounts         []sandbox.Mount // none without a sandbox
}

type outcome struct {
	NotStarted       string // why; then ExitCode counts instead of Status
	Missing          string // the interpreter that was not found for it
	ExitCode         int
	Status           syscall.WaitStatus
	Usage            syscall.Rusage
	Started, Ended   time.Time
	OutCut, ErrCut   bool
	EndedBeingKilled bool // a stop was acted upon before the command ended
}

// link is one end of the socket pair. One goroutine receives, any may send.
type link struct {
	socket
	dec  *gob.Decoder
	came []int // descriptors received, of messages not yet decoded

	mu  sync.Mutex // guards the following
	enc *gob.Encoder
	out bytes.Buffer // enc writes to it
}

func newLink(s socket) *link {
	l := &link{socket: s}
	l.dec, l.enc = gob.NewDecoder((*linkReader)(l)), gob.NewEncoder(&l.out)
	return l
}

// send writes a message; its descriptors stay the caller's.
func (l *link) send(m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Reset()
	if err := l.enc.Encode(m); err != nil {
		return err
	}
	var rights []byte
	if len(m.files) > 0 {
		rights = unix.UnixRights(m.files...)
	}
	return l.write(l.out.Bytes(), rights)
}

// receive returns the next message, whose descriptors are the caller's.
func (l *link) receive() (message, error) {
	var m message
	if err := l.dec.Decode(&m); err != nil {
		return message{}, err
	}
	n := len(m.Files)
	if n > len(l.came) {
		return message{}, fmt.Errorf("%d of %d descriptors came", len(l.came), n)
	}
	m.files, l.came = slices.Clone(l.came[:n]), l.came[n:]
	return m, nil
}

// linkReader is the stream of bytes that link.dec reads. A descriptor comes no later
// than the message it is of, and before those of later messages.
type linkReader link

func (r *linkReader) Read(p []byte) (int, error) {
	var oob [256]byte // room for sixty
	n, oobn, err := r.read(p, oob[:])
	if err != nil {
		return n, err
	}
	control, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return n, fmt.Errorf("control message: %w", err)
	}
	for i := range control {
		fds, err := unix.ParseUnixRights(&control[i])
		if err != nil {
			return n, fmt.Errorf("descriptors: %w", err)
		}
		r.came = append(r.came, fds...)
	}
	return n, nil
}
