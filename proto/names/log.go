package names

// The log messages at the end of an operation (the scheduler's) and of an action (the worker's),
// and the fields from which a log for people at a terminal makes a short line.
const (
	OperationFinished = "operation finished"
	ActionFinished    = "action finished"

	ActionField   = "action" // HASH/SIZE
	TargetField   = "target"
	MnemonicField = "mnemonic"
	OutcomeField  = "outcome"
	ExitCodeField = "exit_code"
	CodeField     = "code" // of an operation that ended with an error
	ErrorField    = "error"
	WorkerField   = "worker" // the worker that ran it, as patterns name it
	PositionField = "position"
	QueuedField   = "queued"
	RanField      = "ran"
)
