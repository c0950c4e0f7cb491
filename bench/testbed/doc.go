// Package testbed is a farm to measure: a scheduler with its storage in this process, workers that come and go,
// proxies that put storage at a distance, and what the machine has to compile.
//
// All that it starts ends with Close, or with the function that was given to WithWorker. A process that serves
// FUSE must not fork, so launchers of all workers are started before the first mount, and nothing else is
// started as long as there is one. The lock of a proxy's direction is held for no I/O.
package testbed
