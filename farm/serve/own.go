package serve

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/user"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// socketTables are where the kernel lists sockets of TCP. One of IPv6 may have an IPv4 address.
var socketTables = []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"}

// established is the state of a socket that its process has not closed. The kernel shows other
// sockets as root's.
const established = "01"

// errNoOwner means that no process on this machine has the socket open.
var errNoOwner = errors.New("no process of this machine has the other end of the connection open")

// userOf returns the user of the socket at remote, which is connected to local, from tables of the
// kernel.
func userOf(remote, local netip.AddrPort, tables []string) (uid int, err error) {
	for lines, err := range openTables(tables) {
		if err != nil {
			return 0, err
		}
		if uid, err = findSocket(lines, remote, local); !errors.Is(err, errNoOwner) {
			return uid, err
		}
	}
	return 0, errNoOwner
}

// openTables yields the lines of each table that this kernel has.
func openTables(tables []string) iter.Seq2[*bufio.Scanner, error] {
	return func(yield func(*bufio.Scanner, error) bool) {
		for _, table := range tables {
			f, err := os.Open(table)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a kernel without IPv6
			}
			goesOn := yield(bufio.NewScanner(f), err)
			_ = f.Close() // it was only read
			if !goesOn {
				return
			}
		}
	}
}

// findSocket goes through one table: "sl local_address rem_address st … … … uid timeout inode …".
func findSocket(lines *bufio.Scanner, from, to netip.AddrPort) (uid int, err error) {
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != established || fields[9] == "0" {
			continue
		}
		if parseSocket(fields[1]) == from && parseSocket(fields[2]) == to {
			return strconv.Atoi(fields[7])
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, errNoOwner
}

// parseSocket returns an address as the kernel lists it: words of 32 bits as this machine has them,
// and a port.
func parseSocket(text string) (address netip.AddrPort) {
	words, port, _ := strings.Cut(text, ":")
	var b []byte
	for ; len(words) >= 8; words = words[8:] {
		word, err := strconv.ParseUint(words[:8], 16, 32)
		if err != nil {
			return address
		}
		b = binary.NativeEndian.AppendUint32(b, uint32(word))
	}
	ip, ok := netip.AddrFromSlice(b)
	n, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return address
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n))
}

// addressOf returns an address of TCP, which may be wrapped, as parseSocket does.
func addressOf(a net.Addr) netip.AddrPort {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
}

// checkOwn returns why a connection is not from the user of this process, nor from root: a gRPC
// status.
func checkOwn(remote, local net.Addr) error {
	uid, err := userOf(addressOf(remote), addressOf(local), socketTables)
	switch {
	case err != nil:
		err = fmt.Errorf("which user calls is not known: %w", err)
	case isOwn(uid, os.Geteuid()):
		return nil
	default:
		err = fmt.Errorf("user %s may not call", nameOf(uid))
	}
	return status.Errorf(codes.PermissionDenied, "this farm has no sandbox, so only its user %s and root may use it (%v): "+
		"to let others in, set --tls-client-ca or tokens in --config", nameOf(os.Geteuid()), err)
}

// isOwn reports whether a user is own, who is that of this process, or root.
func isOwn(uid, own int) bool { return uid == own || uid == 0 }

// remoteOf is the client's address of a request.
type remoteOf string

// Network implements net.Addr.
func (remoteOf) Network() string { return "tcp" }

// String implements net.Addr.
func (r remoteOf) String() string { return string(r) }

// nameOf returns the name of a user, or his number.
func nameOf(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}

// ownOnly returns pages for the user of this process and root.
func ownOnly(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if err := checkOwn(remoteOf(r.RemoteAddr), local); err != nil {
			http.Error(w, status.Convert(err).Message(), http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}
