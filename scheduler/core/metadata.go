package core

import repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

// Metadata is what a client says of itself and of what it wants an action for (REv2,
// RequestMetadata), as far as anything depends on it.
//
// Its strings may be parts of the header that they came in: to keep one for longer than the operation, clone it.
type Metadata struct {
	ToolInvocation, Correlated, Mnemonic, Target, Configuration string
	// Encoded is all of it, for the worker; empty if it did not come with a request.
	Encoded string
}

// metadataOf takes what came in a message.
func metadataOf(m *repb.RequestMetadata) Metadata {
	return Metadata{
		ToolInvocation: m.GetToolInvocationId(), Correlated: m.GetCorrelatedInvocationsId(),
		Mnemonic: m.GetActionMnemonic(), Target: m.GetTargetId(), Configuration: m.GetConfigurationId(),
	}
}

// message undoes metadataOf.
func (m *Metadata) message() *repb.RequestMetadata {
	return &repb.RequestMetadata{
		ToolInvocationId: m.ToolInvocation, CorrelatedInvocationsId: m.Correlated,
		ActionMnemonic: m.Mnemonic, TargetId: m.Target, ConfigurationId: m.Configuration,
	}
}
