package sandbox

import (
	"bytes"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// longestTrust is how long after its first command began a network may be given to another. What a
// process leaves for a while in the kernel, without a socket, is there for longer, and to be seen: labels of
// flows stay for 6 s after their socket (FL_MIN_LINGER).
const longestTrust = 4 * time.Second

// witnessFiles of /proc/net tell of what a process without power over its network namespace can leave there.
// Sockets are counted until the kernel has given up the last reference, be it in a message that
// nobody has received, and so are connections in TIME_WAIT. All else that outlives sockets (metrics of
// TCP, neighbours, exceptions of routes, fragments) comes from packets, and no packet goes unnoticed: the
// loopback device counts it, or the protocol that found no route for it. Labels of flows take no packet.
//
// A file that the kernel lacks, because it has no IPv6, tells nothing and there is nothing to tell.
var witnessFiles = []string{
	"sockstat", "dev", "snmp", "igmp",
	"sockstat6", "snmp6", "igmp6", "ip6_flowlabel",
}

// A witness is one of these files in a namespace.
type witness struct {
	fd   int
	said []byte // when nobody had been there
}

// mostSaid is more than any of the files says when nobody has been there.
const mostSaid = 32 << 10

// openWitnesses asks those of the calling thread's namespace; none if it cannot trust them.
func openWitnesses() (all []witness) {
	buf := make([]byte, mostSaid)
	for _, name := range witnessFiles {
		fd, err := unix.Open("/proc/thread-self/net/"+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		w := witness{fd: fd}
		if err == nil {
			w.said, err = w.ask(buf)
			w.said = bytes.Clone(w.said)
			all = append(all, w)
		}
		if err != nil {
			for _, w := range all {
				_ = unix.Close(w.fd)
			}
			return nil
		}
	}
	return all
}

// ask returns what w says now, without what is of the whole machine. It reads into buf.
func (w *witness) ask(buf []byte) ([]byte, error) {
	n, err := unix.Pread(w.fd, buf, 0)
	if err != nil || n == len(buf) {
		return nil, fmt.Errorf("read what is in a network namespace: %d bytes, %w", n, err)
	}
	return ownOf(buf[:n]), nil
}

// ownOf takes out of text, in place, what sockstat tells of all namespaces together.
func ownOf(text []byte) []byte {
	if !bytes.HasPrefix(text, []byte("sockets:")) {
		return text
	}
	fields := bytes.Fields(text)
	own := text[:0:0]
	for i, f := range fields {
		if i > 0 {
			switch string(fields[i-1]) {
			case "orphan", "alloc", "mem":
				continue
			}
		}
		own = append(append(own, f...), ' ')
	}
	return own
}

// untouched reports whether n is as it was made, when the commands in it have ended. When in doubt it is not.
// It reads into buf, of mostSaid bytes.
func (n *network) untouched(now time.Time, buf []byte) bool {
	if len(n.witnesses) == 0 || now.Sub(n.entered) > longestTrust {
		return false
	}
	for _, w := range n.witnesses {
		if said, err := w.ask(buf); err != nil || !bytes.Equal(said, w.said) {
			return false
		}
	}
	return true
}
