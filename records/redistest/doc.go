// Package redistest runs real Redis servers for tests: a single server, a master with replicas and
// Sentinels, or a Cluster. They listen on free ports of 127.0.0.1, store data only in a folder of
// the test, and end with the test.
//
// If redis-server is not installed (Debian's packages redis-server and redis-sentinel), a test is
// skipped; with CI set in the environment it fails.
//
// Each server has one goroutine, which waits for its process; Kill waits for this goroutine. There
// are no locks.
package redistest
