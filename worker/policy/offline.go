package policy

import (
	"bytes"
	"io"
	"os"
)

// NoNetworkHint returns the hint for clients about a failed command whose network was off only by
// default, if it seems to need one.
const NoNetworkHint = "the command had no network, as is the default here; if it needs the network, " +
	"give the action the platform property network=on"

const (
	// lastOutput is how much of the end of a stream is searched.
	lastOutput = 64 << 10
	// curlUnresolved is curl's exit code for a name that it cannot resolve: with -s it is all that
	// it says.
	curlUnresolved = 6
)

// offline are texts, in lower case, that programs print if they cannot resolve a name or reach a
// network.
var offline = [][]byte{
	[]byte("could not resolve"), []byte("couldn't resolve"), []byte("unable to resolve"), []byte("name resolution"), // curl, git, wget, C library
	[]byte("name or service not known"), []byte("nodename nor servname"), []byte("no address associated with hostname"), // C library
	[]byte("unknown host"), []byte("unknownhostexception: "), // ping, Java
	[]byte("no such host"), []byte("dial tcp: lookup"), // Go
	[]byte("getaddrinfo enotfound"), []byte("getaddrinfo: "), []byte("eai_again"), []byte("enetunreach"), // Node.js, Ruby
	[]byte("failed to lookup address"), []byte("dns error"), // Rust
	[]byte("network is unreachable"), []byte("no route to host"), []byte("couldn't connect to server"),
}

// MissesNetwork reports whether a failed command, which had no network, seems to need one: by its
// exit code and the files of its output. This is for a hint, so files that cannot be read count as
// empty.
func MissesNetwork(exitCode int, stdout, stderr string) bool {
	silent := true
	for _, name := range []string{stderr, stdout} {
		end := bytes.ToLower(endOf(name))
		silent = silent && len(end) == 0
		for _, text := range offline {
			if bytes.Contains(end, text) {
				return true
			}
		}
	}
	return silent && exitCode == curlUnresolved
}

// endOf returns the last bytes of a file, as far as they can be read.
func endOf(name string) []byte {
	f, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	end, _ := io.ReadAll(io.NewSectionReader(f, max(info.Size()-lastOutput, 0), lastOutput))
	return end
}
