package serve

import (
	"net"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/intake/inprocess"
)

// Direct makes connections within this process without sockets. Its callers are trusted, like those
// of an InProcess. The zero Direct has no server yet.
type Direct struct{ served atomic.Pointer[served] }

// served is a server, and how connections to it are watched.
type served struct {
	*intake.Server
	open func(remote net.Addr) (from net.Addr, closed func())
}

// Serve sets the server that calls reach. open returns the address that the calls of a connection
// come from, and a function that is called when it is closed.
func (d *Direct) Serve(s *intake.Server, open func(remote net.Addr) (from net.Addr, closed func())) {
	d.served.Store(&served{s, open})
}

// errNotServed is the error of Connect before Serve.
var errNotServed = status.Error(codes.Unavailable, "nothing serves within the process yet")

// Connect returns a connection to the server.
func (d *Direct) Connect() (dial.Conn, error) {
	s := d.served.Load()
	if s == nil {
		return nil, errNotServed
	}
	from, closed := s.open(inProcessAddr{})
	return s.Dial(peer.Peer{Addr: from, LocalAddr: inProcessAddr{}, AuthInfo: auth.InProcess{}},
		inprocess.ConnOptions{MaxReceive: dial.Receive, Closed: closed}), nil
}
