// Package certs makes TLS of files: certificates, their keys and those of authorities
// (PEM), for servers and for clients. Changed files are taken up by the next
// handshake; connections that are there go on, with what was agreed when they began.
//
// A server asks every client for a certificate if it has authorities for them, and
// refuses one that they did not sign. It takes clients without one, too: package auth,
// which knows about tokens, says to them in words what is missing.
//
// The package has no goroutines and no locks.
package certs
