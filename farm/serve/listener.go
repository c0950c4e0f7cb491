package serve

import (
	"bufio"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// inListen is the state of a socket that a process listens on.
const inListen = "0A"

// A Listener is a process that listens on an address.
type Listener struct {
	PID     int
	Program string // its file's name
}

// ListenerAt returns the process that occupies an address of this machine, as net.Listen takes it,
// as far as this process may see it; false: it is not known.
func ListenerAt(address string) (l Listener, known bool) {
	resolved, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return l, false
	}
	at := resolved.AddrPort()
	if len(resolved.IP) == 0 { // such as :8982
		at = netip.AddrPortFrom(netip.IPv6Unspecified(), at.Port())
	}
	sockets := map[string]bool{}
	for lines, err := range openTables(socketTables) {
		if err != nil || listenersAt(at, lines, sockets) != nil {
			return l, false
		}
	}
	open, _ := filepath.Glob("/proc/[0-9]*/fd/*") // its only error is that of a malformed pattern
	for _, name := range open {
		if target, err := os.Readlink(name); err != nil || !sockets[target] {
			continue // it has ended or is of another user, or this is another file
		}
		process := filepath.Dir(filepath.Dir(name))
		program, err := os.Readlink(process + "/exe")
		if l.PID, _ = strconv.Atoi(filepath.Base(process)); err != nil {
			return l, false
		}
		l.Program = filepath.Base(strings.TrimSuffix(program, " (deleted)"))
		return l, true
	}
	return l, false
}

// listenersAt adds the sockets of a table of the kernel that occupy an address, as links to them
// read.
func listenersAt(at netip.AddrPort, lines *bufio.Scanner, sockets map[string]bool) error {
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != inListen {
			continue
		}
		if socket := parseSocket(fields[1]); socket.Port() == at.Port() &&
			(socket.Addr() == at.Addr().Unmap() || socket.Addr().IsUnspecified() || at.Addr().Unmap().IsUnspecified()) {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
	return lines.Err()
}
