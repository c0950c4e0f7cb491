// Package testbed is a farm for measurements: a scheduler with its storage in this process, workers
// that come and go, proxies that put storage at a distance, and the machine's inputs for
// compilations.
//
// Everything that it starts ends with Close, or with the function that was given to WithWorker. A
// process that serves FUSE must not fork, so the launchers of all workers start before the first
// mount, and nothing else starts as long as there is one. The lock of a proxy's direction is not
// held during I/O.
package testbed
