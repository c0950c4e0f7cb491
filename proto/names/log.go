package names

// What the log says at the end of an operation (the scheduler's) and of an action (the worker's), and the fields by which a log for people
// at a terminal makes a short line of it.
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
	WorkerField   = "worker" // key of the worker that ran it
	QueuedField   = "queued"
	RanField      = "ran"
)
