package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/intake"
)

// InProcessNetwork is the network name of connections within this process.
const InProcessNetwork = "in-process"

// An InProcess is a listener for this process only: each connection is a pair of unnamed sockets.
// Its callers are trusted.
type InProcess struct {
	accepted chan net.Conn
	closed   chan struct{}
	close    func()
}

// NewInProcess returns an InProcess.
func NewInProcess() *InProcess {
	closed := make(chan struct{})
	return &InProcess{
		accepted: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) }),
	}
}

// Dial connects to the caller of Accept.
func (l *InProcess) Dial(ctx context.Context, _ string) (net.Conn, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("connect within the process: %w", err)
	}
	ours, err := connOf(pair[0])
	theirs, err2 := connOf(pair[1])
	if err := errors.Join(err, err2); err != nil {
		return nil, errors.Join(err, closeConn(ours), closeConn(theirs))
	}
	select {
	case l.accepted <- inProcessConn{theirs}:
		return ours, nil
	case <-l.closed:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, ours.Close(), theirs.Close())
}

func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), InProcessNetwork)
	defer f.Close()
	return net.FileConn(f)
}

func closeConn(c net.Conn) error {
	if c == nil {
		return nil
	}
	return c.Close()
}

// Accept implements net.Listener.
func (l *InProcess) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *InProcess) Close() error {
	l.close()
	return nil
}

// Addr implements net.Listener.
func (l *InProcess) Addr() net.Addr { return inProcessAddr{} }

// orInProcess passes connections of this process through, and shakes hands with all others.
type orInProcess struct {
	credentials.TransportCredentials
	ownUser bool // see Protection.OwnUser
}

// ServerHandshake implements credentials.TransportCredentials.
func (c orInProcess) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if raw.RemoteAddr().Network() == InProcessNetwork {
		return raw, auth.InProcess{}, nil
	}
	var refused error
	if c.ownUser {
		refused = checkOwn(raw.RemoteAddr(), raw.LocalAddr())
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return conn, info, err
	}
	through, _ := raw.(*intake.Conn) // nil: it came through no gate
	if t, ok := info.(credentials.TLSInfo); ok && len(t.State.VerifiedChains) > 0 {
		through.Known()
	}
	return conn, arrived{info, through, refused}, nil
}

// Clone implements credentials.TransportCredentials.
func (c orInProcess) Clone() credentials.TransportCredentials {
	return orInProcess{c.TransportCredentials.Clone(), c.ownUser}
}

// arrived is a connection with its properties.
type arrived struct {
	credentials.AuthInfo
	conn    *intake.Conn // nil: it came through no gate
	refused error        // why no call over it is answered; nil: calls are
}

// Through implements intake.Arrival.
func (a arrived) Through() *intake.Conn { return a.conn }

// Inner implements an interface of auth.Guard.
func (a arrived) Inner() credentials.AuthInfo { return a.AuthInfo }

// GetSecurityValue implements credentials.ChannelzSecurityInfo, for channelz.
func (a arrived) GetSecurityValue() credentials.ChannelzSecurityValue {
	if i, ok := a.AuthInfo.(credentials.ChannelzSecurityInfo); ok {
		return i.GetSecurityValue()
	}
	return nil
}

type inProcessConn struct{ net.Conn }

// RemoteAddr implements net.Conn.
func (inProcessConn) RemoteAddr() net.Addr { return inProcessAddr{} }

type inProcessAddr struct{}

func (inProcessAddr) Network() string { return InProcessNetwork }
func (inProcessAddr) String() string  { return InProcessNetwork }
