// Package peer lets workers read each other's stores: a Server serves a store, a Peer is the store
// of another worker, a Pool has the connections to peers, and a Fetcher asks peers before storage.
// It refuses to trust peers: everything they send is verified, and a peer that is slow, wrong or
// gone costs a few milliseconds and fails nothing.
//
// A call of Fetcher.Fetch starts one goroutine and waits for it. fetch.mu, Pool.mu and Peer.mu are
// never held together, nor during I/O or a callback.
package peer
