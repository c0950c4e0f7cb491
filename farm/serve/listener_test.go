package serve

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

func TestListenerAt(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := Listener{os.Getpid(), filepath.Base(program)}
	for _, address := range []string{"127.0.0.1:0", ":0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Skipf("listen on %s: %v", address, err)
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		asked := l.Addr().String()
		if address == ":0" {
			asked = "127.0.0.1:" + port
		}
		for _, asked := range []string{asked, ":" + port, "0.0.0.0:" + port} {
			if got, known := ListenerAt(asked); !known || got != want {
				t.Errorf("%s: %v, %t, want %v", asked, got, known, want)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got, known := ListenerAt(asked); known {
			t.Errorf("%s, where nobody listens: %v", asked, got)
		}
	}
	if got, known := ListenerAt("no address"); known {
		t.Errorf("no address: %v", got)
	}
}
