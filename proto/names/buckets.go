package names

// Buckets of records, each with its contents and the digest in its keys.
const (
	// ProfileBucket has buildbarn.fsac.FileSystemAccessProfile by reduced action digest.
	ProfileBucket = "profile"
	// CoarseBucket has the same messages by the digest of a forerunner.profiles.CoarseKey.
	CoarseBucket = "coarse"
	// StatisticsBucket has buildbarn.iscc.PreviousExecutionStats by reduced action digest.
	StatisticsBucket = "statistics"
	// RunsBucket has forerunner.runs.Record by reduced action digest.
	RunsBucket = "runs"
	// KindsBucket has forerunner.runs.Record by the digest of a forerunner.profiles.CoarseKey.
	KindsBucket = "kinds"
	// ReuseBucket has forerunner.reuse records by everything that determines the behaviour of a
	// command. The number is raised when the meaning of a record changes.
	ReuseBucket = "reuse-2"
	// AccountsBucket has the same records, of all workers of a scheduler, by accounts.Key.
	AccountsBucket = "accounts-1"
	// FiguresBucket has the data of charts, by the digest of their subject.
	FiguresBucket = "figures"

	// IndexBucket has running actions, by the digest of an index's name and a number.
	IndexBucket = "running"
	// HistoryBucket has records of completed operations, for other schedulers, by the digest of a
	// name and a number.
	HistoryBucket = "history"
	// LeaseBucket has the holder of a lease, by the digest of the lease's name.
	LeaseBucket = "lease"
	// QuotasBucket has the quotas in one record.
	QuotasBucket = "quotas"
	// DrainsBucket has the drains of schedulers that replace each other, by the digest of the
	// lease's name.
	DrainsBucket = "drains"
	// WorkersBucket has the last known workers of a scheduler, by the same digest.
	WorkersBucket = "workers"
)
