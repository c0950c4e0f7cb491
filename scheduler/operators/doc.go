// Package operators answers what operators ask of a scheduler, and does what they say.
//
// A Service is put together of a type for each thing that they look at or change: workers and their drains, queues, operations,
// quotas, size classes, stores. Whatever a drain or a quota changes goes through the engine, and then to who keeps it.
//
// The package decides nothing about actions, and knows no clients and no storage. It does not check who may call: the server does,
// but that callers see only operations that are their own, or that they may observe.
//
// Goroutines: FollowQuotas and WatchPromises are the caller's. Lock order: workers.keeping and quotas.keeping are taken before the
// engine's lock, that of Lost without any other.
package operators
