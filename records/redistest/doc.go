// Package redistest runs real Redis servers for tests: one alone, a master with replicas and
// Sentinels, or a Cluster. They listen on free ports of 127.0.0.1, keep nothing on disk but in a
// folder of the test, and end with it.
//
// Where redis-server is not installed (Debian's packages redis-server and redis-sentinel) a test is
// skipped; with CI set in the environment it fails.
//
// Each server has one goroutine, which waits for its end; Kill waits for that one. There are no
// locks.
package redistest
