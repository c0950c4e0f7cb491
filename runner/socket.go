package runner

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
)

// A socket is one end of a pair of stream sockets.
type socket interface {
	read(p, oob []byte) (n, oobn int, err error)
	// write writes all of p; oob travels with the first byte.
	write(p, oob []byte) error
}

// socketPair makes a pair: the one end for this process, the other for a child.
func socketPair() (ours polledSocket, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ours, nil, fmt.Errorf("socket pair: %w", err)
	}
	theirs = os.NewFile(uintptr(fds[1]), "launcher's socket")
	if ours, err = newPolledSocket(fds[0]); err != nil {
		return ours, nil, errors.Join(err, theirs.Close())
	}
	return ours, theirs, nil
}

// A polledSocket keeps no thread while it waits.
type polledSocket struct{ *net.UnixConn }

// newPolledSocket takes the descriptor over.
func newPolledSocket(fd int) (polledSocket, error) {
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		return polledSocket{}, fmt.Errorf("socket: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		return polledSocket{}, errors.Join(errors.New("socket: not a Unix socket"), conn.Close())
	}
	return polledSocket{unixConn}, nil
}

func (s polledSocket) read(p, oob []byte) (n, oobn int, err error) {
	n, oobn, _, _, err = s.ReadMsgUnix(p, oob)
	return max(n, 0), oobn, err // of the other end's death with something unread, n is -1
}

func (s polledSocket) write(p, oob []byte) error {
	if len(oob) > 0 {
		n, _, err := s.WriteMsgUnix(p, oob, nil)
		if p = p[max(n, 0):]; err != nil || len(p) == 0 {
			return err // else the kernel would be asked to write nothing
		}
	}
	_, err := s.Write(p)
	return err
}

// A blockingSocket is a descriptor that its thread waits for.
type blockingSocket int

func (s blockingSocket) read(p, oob []byte) (n, oobn int, err error) {
	n, err = eintr.Ignore(func() (n int, err error) {
		n, oobn, _, _, err = unix.Recvmsg(int(s), p, oob, unix.MSG_CMSG_CLOEXEC)
		return n, err
	})
	if err == nil && n == 0 {
		err = io.EOF
	}
	return max(n, 0), oobn, err
}

func (s blockingSocket) write(p, oob []byte) error {
	for len(p) > 0 {
		n, err := eintr.Ignore(func() (int, error) { return unix.SendmsgN(int(s), p, oob, nil, unix.MSG_NOSIGNAL) })
		if err != nil {
			return err
		}
		p, oob = p[n:], nil
	}
	return nil
}

// writeStop tells a launcher to stop a command.
func writeStop(to io.Writer, id uint64) error {
	_, err := to.Write(binary.NativeEndian.AppendUint64(nil, id))
	return err
}

// readStop returns the next command to stop.
func readStop(from io.Reader) (id uint64, err error) {
	var b [8]byte
	_, err = io.ReadFull(from, b[:])
	return binary.NativeEndian.Uint64(b[:]), err
}
