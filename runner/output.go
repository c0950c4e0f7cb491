package runner

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
	"github.com/forerunner-build/forerunner/sandbox"
)

// none stands for a file that is not there, or not any more.
const none = -1

// output is one stream of a command: a pipe, copied to a file up to a bound and then
// to nowhere, so that the command is neither blocked nor killed by it.
type output struct {
	child  int   // the command's end; /dev/null if the stream is discarded
	pipe   int   // our end; none if the stream is discarded
	limit  int64 // 0: none
	number int32 // the copier's

	mu   sync.Mutex
	over bool // nothing more is copied; guarded by mu, as all below
	file int  // none if the stream is discarded
	n    int64
	cut  bool
	err  error
}

// outputs are the descriptors a command starts with.
type outputs struct {
	stdin          int
	stdout, stderr *output
	copier         *copier
}

// openOutputs takes the files for the streams over from m, and has c copy what the command writes.
func openOutputs(m *message, c *copier) (*outputs, error) {
	o := &outputs{copier: c}
	var err1, err2, err3 error
	// One for each command: what a command sets on it (O_NONBLOCK, a lock) is not for the next.
	o.stdin, err1 = openNull(unix.O_RDONLY)
	o.stdout, err2 = openOutput(m.take(fileStdout), m.Run.MaxOutputBytes, m.Run.Policy.User)
	o.stderr, err3 = openOutput(m.take(fileStderr), m.Run.MaxOutputBytes, m.Run.Policy.User)
	err := errors.Join(err1, err2, err3)
	if err == nil {
		err = errors.Join(c.add(o.stdout), c.add(o.stderr))
	}
	if err != nil {
		return nil, errors.Join(err, o.close())
	}
	return o, nil
}

func (o *outputs) childFiles() []uintptr {
	return []uintptr{uintptr(o.stdin), uintptr(o.stdout.child), uintptr(o.stderr.child)}
}

// finish takes what is in the pipes and closes the files, when nothing of the command is alive.
func (o *outputs) finish() error { return errors.Join(o.stdout.finish(), o.stderr.finish()) }

// close closes what is left open.
func (o *outputs) close() error {
	if o == nil {
		return nil
	}
	err := closeAll(&o.stdin)
	for _, out := range []*output{o.stdout, o.stderr} {
		if out != nil {
			out.stop()
			o.copier.remove(out)
			err = errors.Join(err, closeAll(&out.child, &out.pipe, &out.file))
		}
	}
	return err
}

// closeAll closes files that are there.
func closeAll(files ...*int) error {
	var errs []error
	for _, fd := range files {
		if *fd >= 0 {
			errs = append(errs, unix.Close(*fd))
		}
		*fd = none
	}
	return errors.Join(errs...)
}

func openNull(access int) (int, error) {
	fd, err := unix.Open(os.DevNull, access|unix.O_CLOEXEC, 0)
	if err != nil {
		return none, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return fd, nil
}

// openOutput copies to file, which is closed in the end; none is nowhere. The command's end is of its
// user, who can open it as /dev/stdout.
func openOutput(file int, limit int64, user *sandbox.User) (o *output, err error) {
	o = &output{child: none, pipe: none, file: file, limit: limit}
	if file < 0 {
		o.child, err = openNull(unix.O_WRONLY)
		return o, err
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return o, fmt.Errorf("pipe: %w", err)
	}
	o.pipe, o.child = fds[0], fds[1]
	// Only our end is non-blocking: a command does not expect that of its own.
	if err := unix.SetNonblock(o.pipe, true); err != nil || user == nil {
		return o, err
	}
	return o, unix.Fchown(o.child, int(user.UID), int(user.GID))
}

// take copies a part of what is in the pipe, and reports whether more may come.
func (o *output) take(buf []byte) (more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return false
	}
	n, err := eintr.Ignore(func() (int, error) { return unix.Read(o.pipe, buf) })
	o.write(buf[:max(n, 0)])
	return n > 0 || errors.Is(err, unix.EAGAIN)
}

// drain takes what is in the pipe now and does not wait for more: a command may have passed its
// descriptor on to a process that is not its own, and that may go on writing, hence the bound.
func (o *output) drain() error {
	// Not its capacity: pieces that were spliced into it may be larger than it says.
	left, err := unix.IoctlGetInt(o.pipe, unix.TIOCINQ)
	if err != nil {
		return fmt.Errorf("ask what is in a pipe: %w", err)
	}
	if left == 0 {
		return nil
	}
	buf := make([]byte, min(left, copyBytes))
	for left > 0 {
		n, err := eintr.Ignore(func() (int, error) { return unix.Read(o.pipe, buf) })
		if err != nil || n == 0 {
			return nil
		}
		o.write(buf[:n])
		left -= n
	}
	return nil
}

// write writes p to the file, up to the bound.
func (o *output) write(p []byte) {
	if o.limit > 0 && int64(len(p)) > o.limit-o.n {
		p = p[:o.limit-o.n]
		o.cut = true
	}
	if len(p) == 0 || o.err != nil {
		return
	}
	n, err := eintr.Write(o.file, p)
	o.n += int64(n)
	if err != nil {
		o.err = fmt.Errorf("write output file: %w", err)
	}
}

// stop has the copier do nothing more.
func (o *output) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

// finish takes all that was written so far, closes the file, and has the copier do nothing more.
func (o *output) finish() error {
	if o.pipe < 0 {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := o.drain()
	o.over = true
	return errors.Join(o.err, err, closeAll(&o.file))
}

// truncated may be asked after finish.
func (o *output) truncated() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.cut
}
