// Package serve has the ports of a program: protection (TLS, authentication, limits for each
// caller), and the pages of every program over HTTP: health, readiness, metrics, profiles.
//
// Other packages register the services. Servers end with the context, or with the function that was
// returned with them. Readiness runs each probe in a separate goroutine, at most one at a time. No
// lock is held during I/O.
package serve
