package serve

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestUserOf(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		t.Run(address, func(t *testing.T) {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Skip(err) // no IPv6
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
			defer server.Close()
			remote, local := addressOf(server.RemoteAddr()), addressOf(server.LocalAddr())
			if uid, err := userOf(remote, local, socketTables); err != nil || uid != os.Getuid() {
				t.Errorf("user %d, %v, want %d", uid, err, os.Getuid())
			}
			if err := checkOwn(server.RemoteAddr(), server.LocalAddr()); err != nil {
				t.Error(err)
			}
			dir := t.TempDir()
			if uid, err := userOf(remote, local, append([]string{dir + "/none"}, socketTables...)); err != nil || uid != os.Getuid() {
				t.Errorf("of a kernel that lacks a table: user %d, %v", uid, err)
			}
			if uid, err := userOf(remote, local, []string{dir}); err == nil || errors.Is(err, errNoOwner) {
				t.Errorf("of a table that cannot be read: user %d, %v", uid, err)
			}
			// The kernel says root of a socket that is closed, and that has not been read to its
			// end.
			if _, err := client.Write([]byte("run this")); err != nil {
				t.Fatal(err)
			}
			if err := client.Close(); err != nil {
				t.Fatal(err)
			}
			if uid, err := userOf(remote, local, socketTables); !errors.Is(err, errNoOwner) {
				t.Errorf("of a closed socket: user %d, %v", uid, err)
			}
		})
	}
}

func TestFindSocket(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	from, to := netip.MustParseAddrPort("127.0.0.1:4660"), netip.MustParseAddrPort("127.0.0.1:8980")
	for name, c := range map[string]struct {
		line string
		uid  int
		err  error
	}{
		"IPv4": {"0: 0100007F:1234 0100007F:2314 01 0:0 00:0 0 1001 0 77 1", 1001, nil},
		"IPv4 in IPv6": {
			"0: 0000000000000000FFFF00000100007F:1234 0000000000000000FFFF00000100007F:2314 01 0:0 00:0 0 1001 0 77 1", 1001, nil,
		},
		"the other end": {"0: 0100007F:2314 0100007F:1234 01 0:0 00:0 0 1001 0 77 1", 0, errNoOwner},
		"another port":  {"0: 0100007F:1235 0100007F:2314 01 0:0 00:0 0 1001 0 77 1", 0, errNoOwner},
		"to another":    {"0: 0100007F:1234 0100007F:2315 01 0:0 00:0 0 1001 0 77 1", 0, errNoOwner},
		"closed":        {"0: 0100007F:1234 0100007F:2314 04 0:0 00:0 0 0 0 0 1", 0, errNoOwner},
		"nobody's":      {"0: 0100007F:1234 0100007F:2314 01 0:0 00:0 0 0 0 0 1", 0, errNoOwner},
		"nonsense":      {"0: x y 01", 0, errNoOwner},
	} {
		t.Run(name, func(t *testing.T) {
			uid, err := findSocket(bufio.NewScanner(strings.NewReader(head+c.line+"\n")), from, to)
			if uid != c.uid || !errors.Is(err, c.err) {
				t.Errorf("user %d, %v, want %d, %v", uid, err, c.uid, c.err)
			}
		})
	}
}

// TestParseSocket: an invalid address is not parsed in part.
func TestParseSocket(t *testing.T) {
	for text, want := range map[string]netip.AddrPort{
		"0100007F:1234":  netip.MustParseAddrPort("127.0.0.1:4660"),
		"X100007F:1234":  {},
		"0100007F:12345": {},
		"0100007F:X":     {},
		"0100007F":       {},
		"01007F:1234":    {},
	} {
		if got := parseSocket(text); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}
