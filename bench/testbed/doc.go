// Package testbed is a farm for measurements: a scheduler with its storage in this process, workers
// that come and go, proxies that simulate a distant storage, and the machine's inputs for
// compilations.
//
// Everything that it starts ends with Close, or with the function that is given to WithWorker. A
// process that serves FUSE must not fork. So the launchers of all workers start before the first
// mount, and nothing else starts while there is a mount. A proxy holds no lock during I/O.
package testbed
