package runner

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
)

// copyBytes is how much of a pipe is copied at a time.
const copyBytes = 32 << 10

// A copier copies what commands write, in the background. Most write nothing, and cost it nothing: no
// thread wakes for the start or the end of a command.
type copier struct {
	epoll int

	mu     sync.Mutex
	open   map[int32]*output // by number; guarded by mu, as is serial
	serial int32
}

// newCopier starts one, which works as long as the process lives.
func newCopier() (*copier, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch the output of commands: %w", err)
	}
	c := &copier{epoll: fd, open: map[int32]*output{}}
	go c.run()
	return c, nil
}

// run copies. Only the end of the process ends it.
func (c *copier) run() {
	buf := make([]byte, copyBytes)
	var events [2]unix.EpollEvent
	for {
		n, err := eintr.Ignore(func() (int, error) { return unix.EpollWait(c.epoll, events[:], -1) })
		if err != nil {
			panic(fmt.Sprintf("wait for the output of commands: %v", err)) // it cannot be
		}
		for _, e := range events[:n] {
			c.mu.Lock()
			o := c.open[e.Fd]
			c.mu.Unlock()
			if o != nil && !o.take(buf) {
				c.remove(o)
			}
		}
	}
}

// add has the copier copy o, unless that is discarded.
func (c *copier) add(o *output) error {
	if o.pipe < 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: c.serial}
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_ADD, o.pipe, &event); err != nil {
		return fmt.Errorf("watch the output of a command: %w", err)
	}
	o.number = c.serial
	c.open[o.number] = o
	return nil
}

// remove has the copier forget o. It may be called again.
func (c *copier) remove(o *output) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[o.number] != o {
		return
	}
	delete(c.open, o.number)
	if err := unix.EpollCtl(c.epoll, unix.EPOLL_CTL_DEL, o.pipe, nil); err != nil {
		panic(fmt.Sprintf("forget the output of a command: %v", err)) // it is open
	}
}
