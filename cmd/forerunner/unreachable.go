package main

import (
	"regexp"
	"strings"
)

// grpcReason is the reason in an error of a gRPC connection.
var grpcReason = regexp.MustCompile(`^connection error: desc = "(?:transport: )?(?:Error while dialing: )?(.*)"$`)

const otherName = "its certificate has other names than --remote: use one of those, or issue one with this name: "

// unreachable says why no scheduler answers, by the message of gRPC, and what to do.
func unreachable(message string) string {
	message = reason(message)
	for _, known := range []struct{ part, says string }{
		{"looked like an HTTP/1.1 header", "that port has pages or metrics: --remote needs the one of --listen, 8980 by default"},
		{"does not look like a TLS handshake", "it has no TLS: use grpc:// instead of grpcs://"},
		{"error reading server preface: EOF", "it may have TLS: use grpcs://"},
		{"certificate has expired or is not yet valid", "its certificate has expired or is not valid yet, or this machine's clock is wrong: " + message},
		{"x509: certificate is ", otherName + message},
		{"x509: cannot validate certificate for", otherName + message},
		{"signed by unknown authority", "its certificate is of an authority that is not trusted here: give that authority's certificate with --tls-ca"},
		{"tls: expired certificate", "it refuses the certificate of --tls-client-cert, which has expired or is not valid yet, by its clock"},
		{"tls: unknown certificate authority", "it refuses the certificate of --tls-client-cert: the authority is none of its --tls-client-ca"},
		{"tls: bad certificate", "it refuses the certificate of --tls-client-cert: perhaps that is not for clients (extendedKeyUsage clientAuth)"},
		{"produced zero addresses", "this name has no address"},
		{"connection refused", message + "; start \"forerunner up\" there, or give the address of another with --remote"},
	} {
		if strings.Contains(message, known.part) {
			return known.says
		}
	}
	return message
}

// reason returns the reason in a message of gRPC, or all of another message.
func reason(message string) string {
	if m := grpcReason.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return message
}
