package uncharged

import (
	"encoding/binary"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

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
	m, err = parseMemory(strings.NewReader("MemTotal:  3 kB\nMemAvailable:  2 kB\nSUnreclaim:  1 kB\nPercpu:  4 kB\nVmallocUsed:  6 kB\nHugePages_Total:  0\n"))
	if want := (Memory{3 << 10, 2 << 10, 5 << 10, 6 << 10}); m != want || err != nil {
		t.Errorf("%+v, %v; want %+v", m, err, want)
	}
	for _, table := range []string{"MemTotal: 3 kB\nMemAvailable: 2 kB\n", "MemTotal: x kB\n", "MemTotal: 3\n"} {
		if m, err := parseMemory(strings.NewReader(table)); err == nil {
			t.Errorf("%q: %+v", table, m)
		}
	}
}
