package dial

import (
	"net"
	"strings"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"

	"github.com/forerunner-build/forerunner/settings"
)

// severalScheme is the scheme of targets that are several addresses.
const severalScheme = "several"

// Addresses parses "grpc://HOST:PORT", grpcs:// or no scheme. More HOST:PORT may follow after
// commas, with the same scheme or none; any of them that answers is used.
func Addresses(whom string) (addresses []string, encrypted bool, err error) {
	scheme, rest, found := strings.Cut(whom, "://")
	if !found {
		scheme, rest = "grpc", whom
	}
	if scheme != "grpc" && scheme != "grpcs" {
		return nil, false, settings.Wrong("address %q: only grpc://HOST:PORT and grpcs://HOST:PORT are supported", whom)
	}
	for address := range strings.SplitSeq(rest, ",") {
		address = strings.TrimPrefix(strings.TrimSpace(address), scheme+"://")
		if !hasPort(address) {
			return nil, false, settings.Wrong("address %q is not of the form %s://HOST:PORT[,HOST:PORT]", whom, scheme)
		}
		addresses = append(addresses, address)
	}
	return addresses, scheme == "grpcs", nil
}

// elsewhere reports whether an address may be another machine's.
func elsewhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err != nil || !IsLoopback(host)
}

// Check returns an error unless whom is one of Addresses.
func Check(whom string) error {
	_, _, err := Addresses(whom)
	return err
}

// A target is the value of a flag that is one of Addresses, or empty.
type target string

// String implements pflag.Value.
func (t *target) String() string { return string(*t) }

// Type implements pflag.Value.
func (*target) Type() string { return "address" }

// Set implements pflag.Value.
func (t *target) Set(text string) error {
	if text != "" {
		if err := Check(text); err != nil {
			return err
		}
	}
	*t = target(text)
	return nil
}

// Flag registers a flag with an address to connect to. It refuses others.
func Flag(flags *pflag.FlagSet, into *string, name, value, usage string) {
	*into = value
	flags.Var((*target)(into), name, usage)
}

// CheckPort returns an error unless address is HOST:PORT, to listen on.
func CheckPort(address string) error {
	if !hasPort(address) {
		return settings.Wrong("address %q is not of the form HOST:PORT", address)
	}
	return nil
}

// hasPort reports whether address is HOST:PORT.
func hasPort(address string) bool {
	_, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}

// several returns an option with which a connection tries addresses one after the other, until one
// answers, and again when that is gone. Names are resolved each time, and certificates must have
// them.
func several(addresses []string) (whom string, list *manual.Resolver) {
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
