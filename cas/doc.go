// Package cas has the words about content: what digests name is a blob, what is wrong with one is
// one of a few kinds of errors, and contracts.go says what stores, those who fetch and those who
// serve may expect of each other. The rooms below it do the work:
//
//   - disk keeps blobs in a folder, and the results of actions in another.
//   - client gets them from elsewhere by the protocols of REv2, server offers them to others; wire is
//     what both have to write alike.
//   - fetch is a view of a store that gets what it lacks.
//   - peer lets workers read each other's stores before they ask storage.
//   - tree reads directories, holders says who has which blobs, scrub reads all of a store over and
//     over.
//
// Package castest has what every store has to pass. The package itself does nothing: it has no
// goroutines, locks or I/O.
package cas
