package freeport

import (
	"net"
	"testing"
)

// Address returns an address for a server that is started next. For a minute, the kernel gives its
// port to nobody who asks for any port, because a connection to it has just ended (TIME_WAIT). Who
// asks for this port gets it.
func Address(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil { // first: this end keeps the port
		t.Fatal(err)
	}
	return l.Addr().String()
}
