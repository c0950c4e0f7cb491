// Package cas defines the terms about content: a blob is the bytes that a digest names, and there
// are a few kinds of errors. contracts.go says what stores, fetchers and servers may expect of each
// other. The packages below do the work:
//
//   - disk keeps blobs in one folder and the results of actions in another.
//   - client and server speak the protocols of REv2; wire has the code that both need.
//   - fetch is a view of a store that fetches missing blobs.
//   - peer lets workers read each other's stores before they ask storage.
//   - tree reads directories, holders knows who has which blobs, scrub reads a whole store again and
//     again.
//
// Package castest has the tests that every store must pass. This package has no goroutines, no
// locks and no I/O.
package cas
