package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/forerunner-build/forerunner/eintr"
	"github.com/forerunner-build/forerunner/sandbox"
	"golang.org/x/sys/unix"
)

// output is one stream of a command: a pipe, copied to a file up to a bound and then
// to nowhere, so that the command is neither blocked nor killed by it.
type output struct {
	file  *os.File // nil: discarded; then null is what the command gets
	child *os.File // the command's end
	pipe  *os.File // our end
	fd    int      // of pipe, without what (*os.File).Fd does to it
	limit int64    // 0: none

	mu   sync.Mutex
	over bool // nothing more is copied; guarded by mu, as all below
	n    int64
	cut  bool
	err  error
}

// outputs are the descriptors a command starts with, and the copiers behind them.
type outputs struct {
	stdin          int // -1: none
	stdout, stderr *output
}

// openOutputs takes the files for the streams over from m.
func openOutputs(m *message) (*outputs, error) {
	o := &outputs{}
	var err1, err2, err3 error
	// One for each command: what a command sets on it (O_NONBLOCK, a lock) is not for the next.
	if o.stdin, err1 = unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0); err1 != nil {
		err1 = &os.PathError{Op: "open", Path: os.DevNull, Err: err1}
	}
	o.stdout, err2 = openOutput(m.take(fileStdout), m.Run.MaxOutputBytes, m.Run.Policy.User)
	o.stderr, err3 = openOutput(m.take(fileStderr), m.Run.MaxOutputBytes, m.Run.Policy.User)
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, errors.Join(err, o.close())
	}
	if err := errors.Join(o.stdout.startCopy(), o.stderr.startCopy()); err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

func (o *outputs) childFiles() []uintptr {
	return []uintptr{uintptr(o.stdin), o.stdout.child.Fd(), o.stderr.child.Fd()}
}

// finish takes what is in the pipes and closes the files, when nothing of the command is alive.
func (o *outputs) finish() error { return errors.Join(o.stdout.finish(), o.stderr.finish()) }

// close closes what is left open. To close a pipe wakes its copier, which takes longer than all of
// finish.
func (o *outputs) close() error {
	if o == nil {
		return nil
	}
	var errs []error
	if o.stdin >= 0 {
		errs = append(errs, unix.Close(o.stdin))
	}
	for _, out := range []*output{o.stdout, o.stderr} {
		if out != nil {
			errs = append(errs, out.closeFiles())
		}
	}
	return errors.Join(errs...)
}

// openOutput copies to file, which is closed in the end; -1 is nowhere. The command's end is of its
// user, who can open it as /dev/stdout.
func openOutput(file int, limit int64, user *sandbox.User) (*output, error) {
	o := &output{limit: limit}
	if file < 0 {
		var err error
		o.child, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		return o, err
	}
	o.file = os.NewFile(uintptr(file), "output file")
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(fmt.Errorf("pipe: %w", err), o.file.Close())
	}
	// Only our end is non-blocking: a command does not expect that of its own.
	err := unix.SetNonblock(fds[0], true)
	if err == nil && user != nil {
		err = unix.Fchown(fds[1], int(user.UID), int(user.GID))
	}
	if err != nil {
		return nil, errors.Join(err, o.file.Close(), unix.Close(fds[0]), unix.Close(fds[1]))
	}
	o.fd = fds[0]
	o.pipe = os.NewFile(uintptr(fds[0]), "output pipe")
	o.child = os.NewFile(uintptr(fds[1]), "output pipe")
	return o, nil
}

// copyBuffers are the buffers of copiers. New ones for each command would cost the kernel time, and
// would be most of a launcher's garbage.
var copyBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// startCopy starts the copier, which ends when the pipe is closed.
func (o *output) startCopy() error {
	if o.pipe == nil {
		return nil
	}
	pipe, err := o.pipe.SyscallConn()
	if err != nil {
		return err
	}
	go func() {
		buffer := copyBuffers.Get().(*[32 << 10]byte)
		defer copyBuffers.Put(buffer)
		// An error is the end of the pipe.
		_ = pipe.Read(func(uintptr) (end bool) {
			for {
				if end, more := o.take(buffer[:]); !more {
					return end
				}
			}
		})
	}()
	return nil
}

// take copies a part of what is in the pipe. It reports whether there is more, and else whether it is
// the end.
func (o *output) take(buf []byte) (end, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return true, false
	}
	n, err := eintr.Ignore(func() (int, error) { return unix.Read(o.fd, buf) })
	if n > 0 {
		o.write(buf[:n])
		return false, true
	}
	return err != unix.EAGAIN, false
}

// drain takes what is in the pipe now and does not wait for more: a command may have passed its
// descriptor on to a process that is not its own, and that may go on writing, hence the bound.
func (o *output) drain() error {
	// Not its capacity: pieces that were spliced into it may be larger than it says.
	left, err := unix.IoctlGetInt(o.fd, unix.TIOCINQ)
	if err != nil {
		return fmt.Errorf("ask what is in a pipe: %w", err)
	}
	if left == 0 {
		return nil
	}
	buffer := copyBuffers.Get().(*[32 << 10]byte)
	defer copyBuffers.Put(buffer)
	for left > 0 {
		n, err := eintr.Ignore(func() (int, error) { return unix.Read(o.fd, buffer[:]) })
		if err != nil || n == 0 {
			return nil
		}
		o.write(buffer[:n])
		left -= n
	}
	return nil
}

func (o *output) write(p []byte) {
	if o.limit > 0 && int64(len(p)) > o.limit-o.n {
		p = p[:o.limit-o.n]
		o.cut = true
	}
	if len(p) == 0 || o.err != nil {
		return
	}
	n, err := o.file.Write(p)
	o.n += int64(n)
	if err != nil {
		o.err = fmt.Errorf("write output file: %w", err)
	}
}

// finish takes all that was written so far, closes the file, and has the copier do nothing more.
func (o *output) finish() error {
	if o.pipe == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.drain()
	o.over = true
	closed := o.file.Close()
	o.file = nil
	return errors.Join(o.err, err, closed)
}

// truncated may be asked after finish.
func (o *output) truncated() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut
}

func (o *output) closeFiles() error {
	var errs []error
	for _, f := range []*os.File{o.child, o.pipe, o.file} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
