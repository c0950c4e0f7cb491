// Package login lets users log in to pages with an external account: OpenID Connect, code flow,
// with PKCE.
//
// A browser that logs in has two cookies. One, for some minutes, holds a secret: the nonce and the
// PKCE verifier of each log-in of the browser are derived from it, and without it a log-in cannot
// be finished. The other is the session: the user, with the facts that rules ask for, and the end
// of the session. It is sealed with a key from a file, so that schedulers with the same file know
// each other's sessions. The rules in force are applied to a session; a change of rules or issuers
// ends all sessions.
//
// What it refuses to do: it keeps no token of an issuer, and does not ask it after the log-in, so
// the session of a user that the issuer has locked out lasts until its end. Sessions that ended by
// logging out are remembered in memory only.
//
// The package has no goroutines. An issuer's configuration is fetched by the log-ins that need it,
// one at a time for each issuer (issuer.fetching). Ended.mu guards the ended sessions, and nothing
// else; no lock is held during a request to an issuer.
package login
