package fusedev

import (
	"errors"
	"fmt"
	"log"
	"math/bits"
	"os"
	"runtime"
	"slices"
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
	// tooLong is how long an answer may keep the turn: it may wait for a disk.
	tooLong = 2 * time.Millisecond
	// headBytes is room for all of a request or an answer but data, whose size is known: the longest
	// is a path of PATH_MAX bytes.
	headBytes = 8192
)

// The kinds of requests whose answers may have data, see FUSE_READ and others in fuse(4).
const (
	opRead, opReadDir, opReadDirPlus = 15, 28, 44
	opGetXAttr, opListXAttr, opIoctl = 22, 23, 39
	// mostOther is the most data of an answer to one of the last three.
	mostOther = 64 << 10
)

// A Conn is a connection to the kernel, for one FUSE mount.
type Conn struct {
	protocol *fuse.ProtocolServer
	options  fuse.MountOptions
	device   *os.File
	raw      syscall.RawConn // of device
	// in is room for the largest request: the kernel insists on room for a write of the largest size,
	// even if there is none. The goroutine with the turn reads into it, and copies the request
	// before it answers.
	in *buffer
	// gone is closed when there are no more requests.
	gone    chan struct{}
	helping atomic.Int32
	loops   sync.WaitGroup

	turn sync.Mutex
	// answering is the request that the goroutine with the turn answers; 0: it reads, or has given
	// up the turn. Guarded by turn.
	answering uint64
}

// Open answers the first request to a device that was just mounted, in which the kernel and fs agree
// on what they can do. Conn owns the device from then on, even if that fails. o must have MaxWrite.
func Open(device int, fs fuse.RawFileSystem, o *fuse.MountOptions) (*Conn, error) {
	if err := unix.SetNonblock(device, true); err != nil {
		return nil, errors.Join(err, unix.Close(device))
	}
	c := &Conn{
		protocol: fuse.NewProtocolServer(fs, o), options: *o, device: os.NewFile(uintptr(device), "/dev/fuse"),
		in: take(o.MaxWrite), gone: make(chan struct{}),
	}
	if c.options.Logger == nil {
		c.options.Logger = log.Default()
	}
	err := c.begin()
	if err != nil {
		c.in.giveBack()
		return nil, errors.Join(err, c.device.Close())
	}
	return c, nil
}

func (c *Conn) begin() (err error) {
	if c.raw, err = c.device.SyscallConn(); err != nil {
		return err
	}
	n, _, err := c.receive(c.in.bytes, false)
	if err != nil {
		return fmt.Errorf("receive the kernel's offer: %w", err)
	}
	if status := c.answer(c.in.bytes[:n]); status != 0 {
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
	c.in.giveBack()
}

// Pass is to be called before the answer to a request waits, so that others need not wait until it
// has taken too long. It may be called again. The number is fuse.InHeader.Unique. The channel is
// closed when the mount is gone, and with it whoever waits for the answer. For number 0, which is of
// another mount, Pass does nothing.
func (c *Conn) Pass(request uint64) (gone <-chan struct{}) {
	if request == 0 {
		return nil
	}
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.answering == request {
		c.answering = 0
		c.loops.Add(1) // before the goroutine that has lost the turn sees that
		go c.loop()
	}
	return c.gone
}

// passNow passes the turn whatever is being answered.
func (c *Conn) passNow() {
	c.turn.Lock()
	request := c.answering
	c.turn.Unlock()
	c.Pass(request)
}

// begins notes that the goroutine with the turn answers a request.
func (c *Conn) begins(request uint64) {
	c.turn.Lock()
	defer c.turn.Unlock()
	c.answering = request
}

// ends notes that the request is answered, and reports whether the goroutine still has the turn.
func (c *Conn) ends(request uint64) bool {
	c.turn.Lock()
	defer c.turn.Unlock()
	has := c.answering == request
	if has {
		c.answering = 0
	}
	return has
}

// Gone returns a channel that is closed when there are no more requests: the mount is gone.
func (c *Conn) Gone() <-chan struct{} { return c.gone }

// loop has the turn.
func (c *Conn) loop() {
	defer c.loops.Done()
	// If it is late and there is another request by then, that one passes the turn for nothing.
	passing := time.AfterFunc(time.Hour, c.passNow)
	defer passing.Stop()
	quick, inARow := 0, 0
	for {
		n, waited, err := c.receive(c.in.bytes, quick >= inSuccession)
		if err != nil {
			close(c.gone)
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
		request := slices.Clone(c.in.bytes[:n])
		number := header(request).Unique
		c.begins(number)
		passing.Reset(tooLong)
		c.answer(request)
		passing.Stop()
		if !c.ends(number) {
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
		for {
			in := take(c.options.MaxWrite)
			n, err := c.poll(in.bytes)
			request := slices.Clone(in.bytes[:max(n, 0)])
			in.giveBack()
			if err != nil {
				return // the goroutine with the turn sees it, too
			}
			c.answer(request)
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

// answer answers a request, and returns the status of the answer. The kernel refuses answers to
// requests that nobody waits for any more. While an answer waits, it keeps the memory that it needs:
// there may be thousands.
func (c *Conn) answer(request []byte) (status unix.Errno) {
	h := header(request)
	b := take(dataBytes(request))
	defer b.giveBack()
	out := (*fuse.OutHeader)(unsafe.Pointer(&b.bytes[0]))
	size, failed := c.protocol.HandleRequest([][]byte{request}, [][]byte{b.bytes})
	if size == 0 && failed == fuse.OK {
		return 0
	}
	if failed == fuse.OK && int(out.Length) != size { // it does not fit
		failed = fuse.EIO
	}
	if failed != fuse.OK { // nothing was written, but somebody waits
		*out = fuse.OutHeader{Length: uint32(unsafe.Sizeof(*out)), Status: -int32(failed), Unique: h.Unique}
		size = int(unsafe.Sizeof(*out))
	}
	status = unix.Errno(-out.Status)
	if err := c.write(b.bytes[:size]); err != nil && !errors.Is(err, unix.ENOENT) {
		c.options.Logger.Printf("answer request %d of kind %d: %v", h.Unique, h.Opcode, err)
	}
	return status
}

// dataBytes is how much data the answer to a request may have.
func dataBytes(request []byte) int {
	switch header(request).Opcode {
	case opRead, opReadDir, opReadDirPlus:
		if len(request) >= int(unsafe.Sizeof(fuse.ReadIn{})) {
			return int((*fuse.ReadIn)(unsafe.Pointer(&request[0])).Size)
		}
	case opGetXAttr, opListXAttr, opIoctl:
		return mostOther
	}
	return 0
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

// A buffer has room for a request or an answer.
type buffer struct {
	bytes []byte
	pool  *sync.Pool
}

// pools have unused buffers, by the logarithm of the size of their data.
var pools [33]sync.Pool

// take returns a buffer for that much data.
func take(data int) *buffer {
	class := bits.Len(uint(max(data, 1) - 1))
	pool := &pools[class]
	if b, ok := pool.Get().(*buffer); ok {
		return b
	}
	size := headBytes
	if class > 0 { // a byte fits anyway
		size += 1 << class
	}
	return &buffer{make([]byte, size), pool}
}

func (b *buffer) giveBack() { b.pool.Put(b) }

func header(request []byte) *fuse.InHeader { return (*fuse.InHeader)(unsafe.Pointer(&request[0])) }
