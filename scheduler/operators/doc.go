// Package operators serves the requests of operators.
//
// A Service consists of a type for each kind of object: workers and their drains, queues,
// operations, quotas, size classes, stores. Changes by a drain or a quota go through the engine,
// and then to their store.
//
// The package decides nothing about actions, and knows no clients and no storage. The server checks
// permissions; this package only makes sure that callers see only their own operations, or those
// that they may observe.
//
// Goroutines: FollowQuotas and WatchPromises run on the caller's. Lock order: workers.keeping and
// quotas.keeping are taken before the engine's lock. Nobody holds another lock when taking that of
// Lost.
package operators
