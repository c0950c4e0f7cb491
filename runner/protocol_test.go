package runner

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestDeathWithSomethingUnread: the kernel resets the connection of a process that dies with
// something unread.
func TestDeathWithSomethingUnread(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := newPolledSocket(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	l := newLink(socket)
	defer socket.Close()
	if err := l.send(message{Kind: kindRun}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fds[1]); err != nil {
		t.Fatal(err)
	}
	if m, err := l.receive(); err == nil {
		t.Errorf("received %+v of nobody", m)
	}
}
