// Package certs makes TLS configurations from files: certificates, their keys and authorities
// (PEM), for servers and for clients. The next handshake uses changed files; existing connections
// go on with what was agreed when they began.
//
// A server asks every client for a certificate if it has authorities for them, and refuses one that
// they did not sign. It accepts clients without one: package auth, which knows about tokens, tells
// them what is missing.
//
// The package has no goroutines, and one lock, which is held for nothing else: that of what the log
// has about failed handshakes.
package certs
