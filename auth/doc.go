// Package auth authenticates and authorizes callers.
//
// A caller is authenticated by its client certificate, which TLS has verified, or by a bearer token
// (JWT) of an issuer whose keys are in a file or are fetched (OpenID Connect Discovery). Rules give
// rights; none removes rights. One table (methods.go) has the right that each RPC needs. An RPC
// that is not in it is refused, and Guard.Check detects that at the start.
//
// A Guard does both before the services of a gRPC server, which then get the caller from
// FromContext, and before HTTP pages, for which users may also log in (Sessions). A program without
// authentication has no Guard, and listens on loopback.
//
// Limits: a call that has begun does not end when its token expires, nor a connection when its
// certificate expires. There is no list of revoked certificates.
//
// The package has no goroutines. Keys of issuers are fetched by calls that need them, one at a time
// for each issuer (remoteKeys.fetching) and without a lock held. verified.mu guards the tokens that
// were seen before, and nothing else.
package auth
