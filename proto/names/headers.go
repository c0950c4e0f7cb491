package names

// Headers of gRPC calls. All are optional.
const (
	// RequestMetadataHeader identifies the client's build tool, build and action (REv2,
	// RequestMetadata).
	RequestMetadataHeader = "build.bazel.remote.execution.v2.requestmetadata-bin"
	// CacheHeader has, with each call of a worker, the address at which its store is served to
	// other workers.
	CacheHeader = "forerunner-cache"
	// BootHeader has, with each call of a worker, a random text that identifies the start of its
	// program.
	BootHeader = "forerunner-boot"
	// ImpliedHeader and RequiredHeader have, with each call of a worker, as a Platform of REv2, its
	// offers besides its platform, and the properties that an action must ask for.
	ImpliedHeader  = "forerunner-implied-bin"
	RequiredHeader = "forerunner-required-bin"
	// PeerHeader is where a scheduler that gives out an action names such addresses, in
	// the order in which to ask.
	PeerHeader = "forerunner-peer"
	// TermHeader has the turn of a scheduler that takes turns with others, a number that grows.
	TermHeader = "forerunner-term"
	// CommandHeader says, with each call of a worker, that it accepts the Command of an action with
	// the action, as a Command of REv2 among the auxiliary metadata, and its maximum size in bytes.
	CommandHeader = "forerunner-command"
	// InstanceHeader has, with each call of a worker that has an action, the instance_name_suffix
	// that came with it: two instance names may have the same action.
	InstanceHeader = "forerunner-instance-bin"
	// GrantHeader is where a scheduler gives a worker the right to write the result of an
	// action, and where the worker shows it to the storage.
	GrantHeader = "forerunner-result-grant"
	// VouchedHeader says, when a worker asks a storage for missing blobs, that it will name the
	// blobs in a result: the storage then verifies unverified ones before it reports them as
	// present.
	VouchedHeader = "forerunner-vouched"
)

// CommandType is the type of a Command that comes with an action.
const CommandType = "type.googleapis.com/build.bazel.remote.execution.v2.Command"
