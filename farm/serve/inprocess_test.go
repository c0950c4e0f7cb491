package serve

import (
	"context"
	"errors"
	"net"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/forerunner-build/forerunner/auth"
)

// TestInProcess: connections of this process arrive and are trusted, until the listener is closed.
func TestInProcess(t *testing.T) {
	l := NewInProcess()
	accepted := make(chan net.Conn, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- conn
	}()
	ours, err := l.Dial(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs := <-accepted
	defer theirs.Close()
	if _, err := ours.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := theirs.Read(make([]byte, 2)); n != 1 || err != nil {
		t.Errorf("%d bytes arrive, %v", n, err)
	}
	if network := l.Addr().Network(); network != InProcessNetwork {
		t.Errorf("the listener is of the network %q", network)
	}
	_, info, err := Protection{OwnUser: true}.credentials().ServerHandshake(theirs)
	if _, ok := info.(auth.InProcess); !ok || err != nil {
		t.Errorf("a connection of this process is %T, %v", info, err)
	}

	// No server accepts the connection.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if conn, err := l.Dial(ended, ""); conn != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v; want %v", conn, err, context.Canceled)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if conn, err := l.Dial(t.Context(), ""); conn != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, %v; want %v", conn, err, net.ErrClosed)
	}
	if conn, err := l.Accept(); conn != nil || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, %v; want %v", conn, err, net.ErrClosed)
	}
}

// TestClonedCredentials: a copy of credentials is for the same users.
func TestClonedCredentials(t *testing.T) {
	others := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for _, own := range []bool{false, true} {
		_, server := connected(t, elsewhere{listening(t), others})
		_, info, err := Protection{OwnUser: own}.credentials().Clone().ServerHandshake(server)
		if a, ok := info.(arrived); !ok || (a.refused != nil) != own || err != nil {
			t.Errorf("for one user: %t: %+v, %v", own, info, err)
		}
	}
}

// secure is an AuthInfo that channelz shows.
type secure struct{ credentials.AuthInfo }

func (secure) GetSecurityValue() credentials.ChannelzSecurityValue {
	return &credentials.TLSChannelzSecurityValue{StandardName: "cipher"}
}

// TestShownSecurity: channelz shows the security of a connection, if it has any.
func TestShownSecurity(t *testing.T) {
	if v := (arrived{AuthInfo: secure{}}).GetSecurityValue(); v == nil {
		t.Error("the security of a connection is not shown")
	}
	_, info, err := insecure.NewCredentials().ServerHandshake(nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := (arrived{AuthInfo: info}).GetSecurityValue(); v != nil {
		t.Errorf("%v of a connection without any", v)
	}
}
