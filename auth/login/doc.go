// Package login has people log in to pages with an account that they have elsewhere: OpenID Connect, code flow, with PKCE.
//
// A browser that logs in has two cookies. One, for some minutes, holds a secret: from it come the nonce and the verifier of
// PKCE of each log-in that the browser begins, and without it nobody can end one. The other is the session: who has logged
// in, as much of it as rules ask for, and until when. It is sealed with a key from a file, so that schedulers with the same
// file know each other's sessions. What a session says is looked at with the rules that are in force; other rules or other
// issuers end all sessions.
//
// What it refuses to do: it keeps no token of an issuer, and asks it nothing after the log-in, so a session of somebody whom
// the issuer has locked out lasts until its end. Sessions that were ended by logging out are remembered in memory only.
//
// The package has no goroutines. What is known of an issuer is fetched by the log-ins that need it, one at a time for each
// issuer (issuer.fetching). Ended.mu guards the sessions that were ended, and nothing else; no lock is held while an issuer
// is asked.
package login
