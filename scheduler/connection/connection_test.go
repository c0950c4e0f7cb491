package connection

import (
	"net"
	"testing"

	"google.golang.org/grpc/peer"
)

// TestOpen: a connection without a listener has an ID and an end like others.
func TestOpen(t *testing.T) {
	var ended []uint64
	ls := NewListeners(func(id uint64) { ended = append(ended, id) })
	other, closeOther := ls.Open(&net.UnixAddr{Name: "other"})
	c, closed := ls.Open(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5})
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: c})
	if got := Of(ctx); got != c || c.ID() == other.ID() || c.Ended() || Host(ctx) != "192.0.2.1" {
		t.Errorf("%v of %v, host %s", got, c, Host(ctx))
	}
	closed()
	closed()
	if !c.Ended() || other.Ended() || len(ended) != 1 || ended[0] != c.ID() {
		t.Errorf("connection %d has ended: %t; told of %d", c.ID(), c.Ended(), ended)
	}
	closeOther()
}
