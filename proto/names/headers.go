package names

// Headers of gRPC calls. All are optional.
const (
	// RequestMetadataHeader identifies the client's build tool, build and action (REv2,
	// RequestMetadata).
	RequestMetadataHeader = "build.bazel.remote.execution.v2.requestmetadata-bin"
	// PageHeader says, on a call of Execute, that the client wants the address of the operation's
	// page, which the answer has in the same header.
	PageHeader = "forerunner-page"
	// CacheHeader has, on each call of a worker, the address at which it serves its store to other
	// workers.
	CacheHeader = "forerunner-cache"
	// BootHeader has, on each call of a worker, a random text that changes when its program starts.
	BootHeader = "forerunner-boot"
	// SlotsHeader has, on each call of a worker, the number of commands that its program runs at
	// once, in decimal digits. It has further positions, in which others prepare or store.
	SlotsHeader = "forerunner-slots"
	// ImpliedHeader and RequiredHeader have, on each call of a worker, as a Platform of REv2,
	// further properties that the worker has, and those that an action must ask for.
	ImpliedHeader  = "forerunner-implied-bin"
	RequiredHeader = "forerunner-required-bin"
	// CircumstancesHeader has, on each call of a worker that shares runs, what identifies how it
	// runs commands, and on which machine, as in forerunner.reuse.FindRequest. It is absent if the
	// worker does not know that its machine is unchanged.
	CircumstancesHeader = "forerunner-circumstances-bin"
	// PeerHeader has, on an answer with an action, the addresses of peers' stores, in the order in
	// which to ask them.
	PeerHeader = "forerunner-peer"
	// TermHeader has the term of a scheduler that replaces others, a number that increases.
	TermHeader = "forerunner-term"
	// CommandHeader says, with each call of a worker, that it accepts the Command of an action with
	// the action, as a Command of REv2 among the auxiliary metadata, and its maximum size in bytes.
	CommandHeader = "forerunner-command"
	// InstanceHeader has, on each call of a worker with an action, the instance_name_suffix that
	// came with it: two instance names may have the same action.
	InstanceHeader = "forerunner-instance-bin"
	// GrantHeader has the grant to write the result of an action, which a scheduler gives to a
	// worker and the worker presents to the storage.
	GrantHeader = "forerunner-result-grant"
	// ResultHeader says, on an answer with an action, that the scheduler writes the result to the
	// action cache if the worker asks for it: with the number of the digest function of the
	// action in the same header, and the grant in GrantHeader, of the call that reports the end.
	ResultHeader = "forerunner-result"
	// VouchedHeader says, when a worker asks a storage for missing blobs, that it will name the
	// blobs in a result: the storage then verifies unverified ones before it reports them as
	// present.
	VouchedHeader = "forerunner-vouched"
)

// CommandType is the type of a Command that comes with an action.
const CommandType = "type.googleapis.com/build.bazel.remote.execution.v2.Command"
