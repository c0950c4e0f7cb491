package sizeclass

// The buckets of a record.Store.
const (
	// StatisticsBucket has buildbarn.iscc.PreviousExecutionStats by reduced action digest.
	StatisticsBucket = "statistics"
	// RunsBucket has forerunner.runs.Record by reduced action digest.
	RunsBucket = "runs"
	// KindsBucket has forerunner.runs.Record by the digest of a forerunner.profiles.CoarseKey.
	KindsBucket = "kinds"
)
