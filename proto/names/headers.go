package names

// Headers of gRPC calls. Who does not know one does without.
const (
	// RequestMetadataHeader is where clients say who asks (REv2, RequestMetadata).
	RequestMetadataHeader = "build.bazel.remote.execution.v2.requestmetadata-bin"
	// CacheHeader is where a worker says, with each call, at which address its store is served
	// to other workers.
	CacheHeader = "forerunner-cache"
	// BootHeader is where a worker says, with each call, which start of its program calls: a random text.
	BootHeader = "forerunner-boot"
	// ImpliedHeader and RequiredHeader are where a worker says, with each call, in a Platform of REv2, what it offers besides its
	// platform, and which of its properties an action has to ask for.
	ImpliedHeader  = "forerunner-implied-bin"
	RequiredHeader = "forerunner-required-bin"
	// PeerHeader is where a scheduler that gives out an action names such addresses, in
	// the order in which to ask.
	PeerHeader = "forerunner-neighbour"
	// TermHeader is where a scheduler that takes turns with others says which turn this is, a
	// number that grows.
	TermHeader = "forerunner-term"
	// CommandHeader is where a worker says, with each call, that it takes the Command of an action with the action, as a Command of
	// REv2 among the auxiliary metadata, and of how many bytes at most.
	CommandHeader = "forerunner-command"
	// GrantHeader is where a scheduler gives a worker the right to write the result of an
	// action, and where the worker shows it to the storage.
	GrantHeader = "forerunner-result-grant"
	// VouchedHeader is where a worker says, when it asks a storage what is missing, that it is about to name the blobs in a
	// result, whatever it says there: the storage then reads those that are not vouched for, before it says that they are there.
	VouchedHeader = "forerunner-vouched"
)

// CommandType is what a Command is called that goes with an action.
const CommandType = "type.googleapis.com/build.bazel.remote.execution.v2.Command"
