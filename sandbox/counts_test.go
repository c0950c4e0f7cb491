package sandbox_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// hoards each take one unit of a resource that the kernel counts per user.
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
	name, _ := unix.BytePtrFromString(fmt.Sprintf("sandbox-test-%d", i))
	return name
}

// hoardName is the abuse that takes all it can get, creates a file, and holds everything until
// another file exists.
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

// hold creates the file and waits until the other file exists.
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

// fillSockets sends 200 MB through sockets of its own without a reader.
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

// TestHoards: while a command has taken all that it can get, root of the machine can still get
// some, and so can other commands, which count for root or for users of their own.
func TestHoards(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	const own = 1 << 20
	for what, take := range hoards {
		t.Run(what, func(t *testing.T) {
			l := launchertest.Sandboxed(t, launchertest.Slot(t, 1))
			cmd := abuse(t, hoardName, what)
			cmd.User, cmd.NoNetwork = launchertest.OwnIDs, true
			launchertest.OpenParents(t, cmd.Dir)
			type end struct {
				result runner.Result
				err    error
			}
			ended := make(chan end, 1)
			full := launchertest.Complete(t, l, cmd)
			go func() { r, err := l.Run(t.Context(), full); ended <- end{r, err} }()
			launchertest.Eventually(t, "the command has taken all", func() bool {
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
				t.Errorf("%+v: %s", e, launchertest.Read(t, cmd.Stdout))
			}
		})
	}
}

// TestMemoryOfSockets: the memory in sockets counts for the slot, although cgroup v1 does not count
// it by itself.
func TestMemoryOfSockets(t *testing.T) {
	slot := launchertest.Slot(t, 1)
	const memory = 64 << 20
	if err := slot.Limit(cgroup.Limits{Memory: memory}); err != nil {
		t.Fatal(err)
	}
	l := launchertest.Sandboxed(t, slot)
	before := socketPages(t)
	cmd := abuse(t, "fill sockets")
	cmd.User, cmd.NoNetwork = launchertest.OwnIDs, true
	launchertest.OpenParents(t, cmd.Dir)
	full := launchertest.Complete(t, l, cmd)
	ended := make(chan error, 1)
	go func() { _, err := l.Run(t.Context(), full); ended <- err }()
	launchertest.Eventually(t, "the sockets are full", func() bool {
		_, err := os.Stat(filepath.Join(cmd.Dir, "taken"))
		return err == nil
	})
	if held := (socketPages(t) - before) * os.Getpagesize(); held > memory {
		t.Errorf("sockets of a slot of %d MiB hold %d MiB", memory>>20, held>>20)
	}
	if err := os.WriteFile(filepath.Join(cmd.Dir, "enough"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// socketPages are those that the sockets of the machine hold.
func socketPages(t *testing.T) (pages int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, mem, ok := strings.Cut(line, " mem "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(mem))
			pages += n
		}
	}
	return pages
}
