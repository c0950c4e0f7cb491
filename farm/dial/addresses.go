package dial

import (
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
)

// severalScheme is the scheme of targets that are several addresses.
const severalScheme = "several"

// Addresses parses "grpc://HOST:PORT", grpcs:// or no scheme. More HOST:PORT may follow after
// commas, with the same scheme or none; any of them that answers is used.
func Addresses(target string) (addresses []string, encrypted bool, err error) {
	scheme, rest, found := strings.Cut(target, "://")
	if !found {
		scheme, rest = "grpc", target
	}
	if scheme != "grpc" && scheme != "grpcs" {
		return nil, false, fmt.Errorf("address %q: only grpc://HOST:PORT and grpcs://HOST:PORT are supported", target)
	}
	for address := range strings.SplitSeq(rest, ",") {
		address = strings.TrimPrefix(strings.TrimSpace(address), scheme+"://")
		if _, _, err := net.SplitHostPort(address); err != nil {
			return nil, false, fmt.Errorf("address %q is not of the form %s://HOST:PORT[,HOST:PORT]", target, scheme)
		}
		addresses = append(addresses, address)
	}
	return addresses, scheme == "grpcs", nil
}

// several returns an option with which a connection tries addresses one after the other, until one
// answers, and again when that is gone. Names are resolved each time, and certificates must have
// them.
func several(addresses []string) (target string, list *manual.Resolver) {
	list = manual.NewBuilderWithScheme(severalScheme)
	var state resolver.State
	for _, address := range addresses {
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses: []resolver.Address{{Addr: address, ServerName: address}},
		})
	}
	list.InitialState(state)
	return severalScheme + ":///" + addresses[0], list
}

// IsLoopback reports whether a host is certain to be this machine and only reachable from it. A
// name is not: its address may change.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
