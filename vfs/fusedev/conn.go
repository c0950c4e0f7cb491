package fusedev

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

const (
	// shortly is how long the goroutine with the turn waits in the kernel, after inSuccession requests
	// that all came as soon. It waits much longer for nothing: the runtime's threads have timers of
	// low resolution.
	shortly      = 100 * time.Microsecond
	inSuccession = 16
	// severalAsk is how many requests in a row must have been there already for a helper. The
	// release of a file, which nobody waits for, often precedes another request.
	severalAsk = 4
	// headBytes is room for what precedes the data of a request or an answer.
	headBytes = 4096
)

// A Conn is a connection to the kernel, for one FUSE mount.
type Conn struct {
	protocol *fuse.ProtocolServer
	options  *fuse.MountOptions
	device   *os.File
	raw      syscall.RawConn // of device
	// answering is the request that the goroutine with the turn answers; 0: it reads, or has given
	// up the turn.
	answering atomic.Uint64
	helping   atomic.Int32
	loops     sync.WaitGroup
}

// Open answers the first request to a device that was just mounted, in which the kernel and fs agree
// on what they can do. Conn owns the device from then on, even if that fails.
func Open(device int, fs fuse.RawFileSystem, o *fuse.MountOptions) (*Conn, error) {
	if err := unix.SetNonblock(device, true); err != nil {
		return nil, errors.Join(err, unix.Close(device))
	}
	c := &Conn{protocol: fuse.NewProtocolServer(fs, o), options: o, device: os.NewFile(uintptr(device), "/dev/fuse")}
	err := c.begin()
	if err != nil {
		return nil, errors.Join(err, c.device.Close())
	}
	return c, nil
}

func (c *Conn) begin() (err error) {
	if c.raw, err = c.device.SyscallConn(); err != nil {
		return err
	}
	b := c.take()
	defer b.giveBack()
	n, _, err := c.receive(b.in, false)
	if err != nil {
		return fmt.Errorf("receive the kernel's offer: %w", err)
	}
	if status := c.answer(b, n); status != 0 {
		return fmt.Errorf("agree with the kernel: %w", status)
	}
	return nil
}

// Serve answers requests until the mount is gone, and returns when all answers have ended.
func (c *Conn) Serve() {
	c.loops.Add(1)
	c.loop()
	c.loops.Wait()
	_ = c.device.Close()
}

// Pass must be called before the answer to a request waits. It may be called again. The number is
// fuse.InHeader.Unique.
func (c *Conn) Pass(request uint64) {
	if request != 0 && c.answering.CompareAndSwap(request, 0) {
		c.loops.Add(1)
		go c.loop()
	}
}

// loop has the turn.
func (c *Conn) loop() {
	defer c.loops.Done()
	b := c.take()
	defer b.giveBack()
	quick, inARow := 0, 0
	for {
		n, waited, err := c.receive(b.in, quick >= inSuccession)
		if err != nil {
			if !errors.Is(err, unix.ENODEV) { // the mount is gone
				c.options.Logger.Printf("read from the FUSE device: %v", err)
			}
			return
		}
		if quick++; waited > shortly {
			quick = 0
		}
		if inARow++; waited > 0 {
			inARow = 0
		}
		if inARow >= severalAsk {
			c.help()
		}
		request := b.header().Unique
		c.answering.Store(request)
		c.answer(b, n)
		if !c.answering.CompareAndSwap(request, 0) {
			return // another one has the turn
		}
	}
}

// help starts a helper, unless there are enough.
func (c *Conn) help() {
	if int(c.helping.Add(1)) > runtime.GOMAXPROCS(0) {
		c.helping.Add(-1)
		return
	}
	c.loops.Add(1)
	go func() {
		defer c.loops.Done()
		defer c.helping.Add(-1)
		b := c.take()
		defer b.giveBack()
		for {
			n, err := c.poll(b.in)
			if err != nil {
				return // the goroutine with the turn sees it, too
			}
			c.answer(b, n)
		}
	}()
}

// receive waits for a request. soon: one is to be expected shortly. waited is 0 if one was there at
// first.
func (c *Conn) receive(in []byte, soon bool) (n int, waited time.Duration, err error) {
	var began time.Time
	failed := c.raw.Read(func(fd uintptr) bool {
		if n, err = read(int(fd), in); !errors.Is(err, unix.EAGAIN) {
			return true
		}
		if began.IsZero() {
			began = time.Now()
		}
		if soon && ready(int(fd), shortly) {
			n, err = read(int(fd), in)
		}
		soon = false
		return !errors.Is(err, unix.EAGAIN)
	})
	if !began.IsZero() {
		waited = time.Since(began)
	}
	if failed == nil {
		return n, waited, err
	}
	// The runtime refuses to wait for a device whose mount is gone, from which reads return ENODEV.
	for n, err = c.poll(in); errors.Is(err, unix.EAGAIN); n, err = c.poll(in) {
		if failed := c.raw.Control(func(fd uintptr) { ready(int(fd), time.Second) }); failed != nil {
			return 0, waited, failed
		}
	}
	return n, waited, err
}

// poll returns a request that is there; EAGAIN: none is.
func (c *Conn) poll(in []byte) (n int, err error) {
	if failed := c.raw.Control(func(fd uintptr) { n, err = read(int(fd), in) }); failed != nil {
		return 0, failed
	}
	return n, err
}

// read reads a request. The kernel returns ENOENT for one that was interrupted meanwhile.
func read(fd int, in []byte) (n int, err error) {
	for {
		n, err = unix.Read(fd, in)
		if err != unix.EINTR && err != unix.ENOENT {
			return n, err
		}
	}
}

// ready waits until there is a request to read.
func ready(fd int, d time.Duration) bool {
	timeout := unix.NsecToTimespec(int64(d))
	n, err := unix.Ppoll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, &timeout, nil)
	return err == nil && n > 0
}

// answer answers the request of n bytes in b, and returns the status of the answer. The kernel
// refuses answers to requests that nobody waits for any more.
func (c *Conn) answer(b *buffers, n int) (status unix.Errno) {
	request := *b.header()
	size, failed := c.protocol.HandleRequest([][]byte{b.in[:n]}, [][]byte{b.out})
	if failed != fuse.OK { // nothing was written, but somebody waits
		*(*fuse.OutHeader)(unsafe.Pointer(&b.out[0])) = fuse.OutHeader{
			Length: uint32(unsafe.Sizeof(fuse.OutHeader{})), Status: -int32(failed), Unique: request.Unique,
		}
		size = int(unsafe.Sizeof(fuse.OutHeader{}))
	}
	if size == 0 {
		return 0
	}
	status = unix.Errno(-(*fuse.OutHeader)(unsafe.Pointer(&b.out[0])).Status)
	if err := c.write(b.out[:size]); err != nil && !errors.Is(err, unix.ENOENT) {
		c.options.Logger.Printf("answer request %d of kind %d: %v", request.Unique, request.Opcode, err)
	}
	return status
}

// write writes an answer or a notice.
func (c *Conn) write(parts ...[]byte) (err error) {
	failed := c.raw.Control(func(fd uintptr) {
		for {
			if _, err = unix.Writev(int(fd), parts); err != unix.EINTR {
				return
			}
		}
	})
	return errors.Join(failed, err)
}

// buffers are those of a goroutine that answers requests.
type buffers struct {
	in, out []byte
}

// pools have unused buffers, by their size.
var pools sync.Map // of *sync.Pool, by int

// take returns buffers for the largest request and answer. The kernel insists on room for a write
// of the largest size, even if there is none.
func (c *Conn) take() *buffers {
	size := c.options.MaxWrite + headBytes
	pool, ok := pools.Load(size)
	if !ok {
		pool, _ = pools.LoadOrStore(size, &sync.Pool{New: func() any {
			return &buffers{in: make([]byte, size), out: make([]byte, size)}
		}})
	}
	return pool.(*sync.Pool).Get().(*buffers)
}

func (b *buffers) giveBack() {
	pool, _ := pools.Load(len(b.in))
	pool.(*sync.Pool).Put(b)
}

func (b *buffers) header() *fuse.InHeader { return (*fuse.InHeader)(unsafe.Pointer(&b.in[0])) }
