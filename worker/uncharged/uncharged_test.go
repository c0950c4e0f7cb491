package uncharged

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCountLocks(t *testing.T) {
	const table = `1: POSIX  ADVISORY  WRITE 10 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 11 fe:01:77 0 EOF
3: OFDLCK ADVISORY  READ -1 fe:00:77 0 EOF
3: -> POSIX  ADVISORY  WRITE 12 fe:00:78 0 EOF
4: LEASE
`
	for _, c := range []struct {
		most     int
		pids     []int
		all, own int
	}{{100, []int{10, 12}, 5, 2}, {100, nil, 5, 0}, {2, []int{10, 12}, 2, 1}} {
		all, own, err := countLocks(strings.NewReader(table), c.most, c.pids)
		if all != c.all || own != c.own || err != nil {
			t.Errorf("%d locks, %d of %v, %v; want %d and %d", all, own, c.pids, err, c.all, c.own)
		}
	}
}

// TestLocks takes some of a file.
func TestLocks(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const some = 100
	for i := range int64(some) {
		if err := unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: 2 * i, Len: 1}); err != nil {
			t.Fatal(err)
		}
	}
	all, own, err := Locks(1<<20, []int{os.Getpid()})
	if own < some || all < own || err != nil {
		t.Errorf("%d locks, %d of this process, %v; it has %d", all, own, err, some)
	}
}

// TestNetlink has an answer wait in a socket.
func TestNetlink(t *testing.T) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(s) }()
	const bytes = 60_000
	request := make([]byte, bytes) // one that there is not
	binary.NativeEndian.PutUint32(request, bytes)
	binary.NativeEndian.PutUint16(request[4:], unix.NLMSG_MIN_TYPE)
	binary.NativeEndian.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	if _, err := unix.Write(s, request); err != nil {
		t.Fatal(err)
	}
	for _, process := range []func() (int64, error){
		func() (int64, error) { return Netlink("") },
		func() (int64, error) { return Netlink(strconv.Itoa(os.Getpid())) },
		func() (int64, error) { return NetlinkOf([]int{1 << 30, os.Getpid()}) },
	} {
		if n, err := process(); n < bytes || err != nil {
			t.Errorf("%d bytes wait, %v; there are %d at least", n, err, bytes)
		}
	}
	if _, err := NetlinkOf(nil); err == nil {
		t.Error("no process tells what waits")
	}
	if _, err := sumNetlink(strings.NewReader("head\n1 2 3\n")); err == nil {
		t.Error("a line that is too short tells what waits")
	}
}

func TestMachine(t *testing.T) {
	m, err := Machine()
	if err != nil || m.Kernel <= 0 || m.Available <= 0 || m.Total < m.Available+m.Kernel {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = parseMemory(strings.NewReader("MemTotal:  3 kB\nMemAvailable:  2 kB\nSUnreclaim:  1 kB\nHugePages_Total:  0\n"))
	if want := (Memory{3 << 10, 2 << 10, 1 << 10}); m != want || err != nil {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
	for _, table := range []string{"MemTotal: 3 kB\nMemAvailable: 2 kB\n", "MemTotal: x kB\n", "MemTotal: 3\n"} {
		if m, err := parseMemory(strings.NewReader(table)); err == nil {
			t.Errorf("%q: %+v", table, m)
		}
	}
}
