package runner

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/sandbox"
)

// An output is one stream of a command: a pipe, copied to a file up to a bound and then to nowhere,
// so that the command is neither blocked nor killed by it. It belongs to the forking thread.
type output struct {
	file  int // -1: discarded; then the command writes to the null device
	pipe  int // our end; -1: nothing will come any more
	child int // the command's end, until it is started; then -1
	limit int64

	next time.Time // when to look for more
	n    int64
	cut  bool // something was dropped
	err  error
}

const (
	// readPause is how long a stream is left alone once something was read from it: a command that
	// prints line by line would otherwise wake the launcher for each.
	readPause = 2 * time.Millisecond
	// muchOutput is so much for one read that the pipe may be full soon.
	muchOutput = outputBuffer / 4
	// outputBuffer is as much as is read at once.
	outputBuffer = 32 << 10
)

// openOutput copies to file, which it takes over; -1 is nowhere. The command's end is of its user,
// who can open it as /dev/stdout.
func openOutput(file int, limit int64, user *sandbox.User) (*output, error) {
	o := &output{file: file, pipe: -1, child: -1, limit: limit}
	if file < 0 {
		var err error
		o.child, err = openNull(unix.O_WRONLY)
		return o, err
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return o, fmt.Errorf("pipe: %w", err)
	}
	o.pipe, o.child = fds[0], fds[1]
	// Only our end is non-blocking: a command does not expect that of its own.
	err := unix.SetNonblock(o.pipe, true)
	if err == nil && user != nil {
		err = unix.Fchown(o.child, int(user.UID), int(user.GID))
	}
	return o, err
}

func openNull(flags int) (int, error) {
	fd, err := unix.Open(os.DevNull, flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
	}
	return fd, nil
}

// read copies as much as one read returns: n bytes, 0 if there is nothing now.
func (o *output) read(buf []byte) (n int) {
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(o.pipe, buf) })
	switch {
	case err != nil: // EAGAIN
		return 0
	case n == 0: // nobody has the other end
		_ = closeFD(&o.pipe)
		return 0
	}
	o.write(buf[:n])
	if n < muchOutput {
		o.next = time.Now().Add(readPause)
	}
	return n
}

// drain takes what is in the pipe now and does not wait for more: a command may have passed its
// descriptor on to a process that is not its own, and that may go on writing, hence the bound.
func (o *output) drain(buf []byte) {
	got := 0
	for o.pipe >= 0 {
		n := o.read(buf)
		if n == 0 {
			return
		}
		capacity, err := unix.FcntlInt(uintptr(o.pipe), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			o.err = errors.Join(o.err, fmt.Errorf("ask for the size of a pipe: %w", err))
			return
		}
		if got += n; got >= capacity {
			return
		}
	}
}

func (o *output) write(p []byte) {
	if o.limit > 0 && int64(len(p)) > o.limit-o.n {
		p = p[:o.limit-o.n]
		o.cut = true
	}
	for len(p) > 0 && o.err == nil {
		n, err := ignoringEINTR(func() (int, error) { return unix.Write(o.file, p) })
		if err != nil {
			o.err = fmt.Errorf("write output file: %w", err)
			return
		}
		o.n += int64(n)
		p = p[n:]
	}
}

func (o *output) close() {
	_ = closeFD(&o.pipe)
	_ = closeFD(&o.child)
	if err := closeFD(&o.file); err != nil {
		o.err = errors.Join(o.err, fmt.Errorf("close output file: %w", err))
	}
}

// closeFD closes a descriptor unless it is -1, which it is afterwards.
func closeFD(fd *int) (err error) {
	if *fd >= 0 {
		err = unix.Close(*fd)
		*fd = -1
	}
	return err
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}

// outputs are the descriptors that a command starts with.
type outputs struct {
	stdin          int // -1: none
	stdout, stderr *output
}

// openOutputs takes the files for the streams over from m.
func openOutputs(m *message) (*outputs, error) {
	o := &outputs{}
	var errs [3]error
	// One for each command: what a command sets on it (O_NONBLOCK, a lock) is not for the next.
	o.stdin, errs[0] = openNull(unix.O_RDONLY)
	o.stdout, errs[1] = openOutput(m.take(fileStdout), m.Run.MaxOutputBytes, m.Run.Policy.User)
	o.stderr, errs[2] = openOutput(m.take(fileStderr), m.Run.MaxOutputBytes, m.Run.Policy.User)
	if err := errors.Join(errs[:]...); err != nil {
		o.close()
		return nil, err
	}
	return o, nil
}

func (o *outputs) childFiles() []uintptr {
	return []uintptr{uintptr(o.stdin), uintptr(o.stdout.child), uintptr(o.stderr.child)}
}

// handOver gives up the command's ends, which it has now: then its last process closes them.
func (o *outputs) handOver() {
	for _, fd := range []*int{&o.stdin, &o.stdout.child, &o.stderr.child} {
		_ = closeFD(fd)
	}
}

// watch returns what to poll at that time, and when to poll again at the latest.
func (o *outputs) watch(now, latest time.Time) (fds []unix.PollFd, until time.Time) {
	for _, out := range []*output{o.stdout, o.stderr} {
		switch {
		case out.pipe < 0:
		case !now.Before(out.next):
			fds = append(fds, unix.PollFd{Fd: int32(out.pipe), Events: unix.POLLIN})
		case out.next.Before(latest):
			latest = out.next
		}
	}
	return fds, latest
}

// read copies from the pipes that are ready.
func (o *outputs) read(fds []unix.PollFd, buf []byte) {
	for _, fd := range fds {
		for _, out := range []*output{o.stdout, o.stderr} {
			if fd.Revents != 0 && int(fd.Fd) == out.pipe {
				out.read(buf)
			}
		}
	}
}

// finish takes what is in the pipes and closes everything, when nothing of the command is alive.
func (o *outputs) finish(buf []byte) error {
	o.stdout.drain(buf)
	o.stderr.drain(buf)
	o.close()
	return errors.Join(o.stdout.err, o.stderr.err)
}

func (o *outputs) close() {
	_ = closeFD(&o.stdin)
	o.stdout.close()
	o.stderr.close()
}
