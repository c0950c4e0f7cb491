// Package auth says who calls and what he may do.
//
// Who calls is known by his client certificate, which TLS has verified, or by a bearer
// token (JWT) of an issuer whose keys are in a file or are fetched (OpenID Connect
// Discovery). What he may do is said by rules, each of which gives rights; nothing takes
// rights away. The right that each RPC takes is in one table (methods.go). An RPC that
// is not there is refused, and Guard.Check finds it at the start.
//
// A Guard puts both before the services of a gRPC server, which then find the caller
// with FromContext, and before HTTP pages, for which people may also log in (Sessions). A program that nobody has told who may call
// has no Guard, and listens on loopback.
//
// What it does not do: a call that has begun is not ended when its token expires, nor a
// connection when its certificate does. It keeps no list of revoked certificates.
//
// The package has no goroutines. Keys of issuers are fetched by calls that need them,
// one at a time for each issuer (remoteKeys.fetching) and without a lock held.
// verified.mu guards the tokens that were seen before, and nothing else.
package auth
