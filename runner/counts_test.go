package runner

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// hoards each take one of what the kernel counts by users.
var hoards = map[string]func(i int) error{
	"inotify": func(int) error { _, err := unix.InotifyInit1(unix.IN_CLOEXEC); return err },
	"message queues": func(i int) error {
		attributes := [8]int64{1: 10, 2: 8192} // messages, and bytes of each
		return call(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(queueName(i))), unix.O_CREAT|unix.O_RDWR, 0o600, uintptr(unsafe.Pointer(&attributes)))
	},
	"pending signals": func(int) error {
		var timer int32
		return call(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, 0, uintptr(unsafe.Pointer(&timer)))
	},
}

func queueName(i int) *byte {
	name, _ := unix.BytePtrFromString(fmt.Sprintf("runner-test-%d", i))
	return name
}

// hoardName is the abuse that takes all it gets, says so with a file, and holds it until another one
// is there.
const hoardName = "hoard"

func hoard(what string) error {
	const enough = 1 << 17
	i, err := 0, error(nil)
	for ; i < enough && err == nil; i++ {
		err = hoards[what](i)
	}
	if i == 1 {
		return fmt.Errorf("none is there: %w", err)
	}
	return hold()
}

// hold says that all is taken, and holds it until enough is there.
func hold() error {
	if err := os.WriteFile("taken", nil, 0o644); err != nil {
		return err
	}
	for {
		if _, err := os.Stat("enough"); err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}

// fillSockets sends 200 MB, in sockets of its own, to nobody who reads.
func fillSockets([]string) error {
	for range 200 {
		to, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer func() { _ = to.Close() }()
		if err := to.(*net.UDPConn).SetReadBuffer(1 << 20); err != nil {
			return err
		}
		from, err := net.Dial("udp", to.LocalAddr().String())
		if err != nil {
			return err
		}
		for range 16 {
			_, _ = from.Write(make([]byte, 60_000))
		}
		_ = from.Close()
	}
	return hold()
}

// While a command has taken all that it gets, root of the machine gets some, and so do other commands,
// who count for root or for a user of their own.
func TestHoards(t *testing.T) {
	needUserNamespaces(t)
	const own = 1 << 20
	for what, take := range hoards {
		t.Run(what, func(t *testing.T) {
			l := newSandbox(t, newSlot(t, 1))
			cmd := abuse(t, hoardName, what)
			cmd.User, cmd.NoNetwork = ownIDs, true
			openParents(t, cmd.Dir)
			type end struct {
				result Result
				err    error
			}
			ended := make(chan end, 1)
			sandboxed := sandboxed(t, l, cmd)
			go func() { r, err := l.Run(t.Context(), sandboxed); ended <- end{r, err} }()
			eventually(t, "the command has taken all", func() bool {
				_, err := os.Stat(filepath.Join(cmd.Dir, "taken"))
				return err == nil
			})
			if err := take(own); err != nil {
				t.Errorf("root gets none: %v", err)
			}
			_ = call(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(queueName(own))))
			if err := os.WriteFile(filepath.Join(cmd.Dir, "enough"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if e := <-ended; e.err != nil || e.result.ExitCode != 0 {
				t.Errorf("%+v: %s", e, read(t, cmd.Stdout))
			}
		})
	}
}
