package request

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// An Operation is a client's request. It is read-only once it is submitted.
type Operation struct {
	// Name identifies the operation; the caller makes it unique.
	Name string
	// Instance is the client's instance name.
	Instance string
	// Size is the size class on which the action starts.
	Size Size
	// Private operations are never joined with others of the same action.
	Private bool
	// Priority and Expected order the operations of one invocation: lower priorities go first
	// (REv2, ExecutionPolicy), then longer expected durations. Priorities also change the shares of
	// invocations; see package fair.
	Priority int32
	Expected time.Duration
	// Platform has the properties that a worker needs.
	Platform Platform
	// Digest is the action's digest.
	Digest digest.Digest
	// Action is the action for the worker; its timeout is set.
	Action *repb.Action
	// User is the caller, Claims are other facts about the caller; both are empty without
	// authentication.
	User   string
	Claims map[string]string
	// Client identifies the caller for Config.MaxPerClient; empty: the operation counts for nobody.
	Client string

	// The other fields are passed on: the client, metadata that the worker copies into the result,
	// the W3C trace context, and other data of the caller. Each may be nil or empty.
	Request   Metadata
	Auxiliary []*anypb.Any
	Trace     map[string]string
	Owner     any
}

// Metadata is a client's RequestMetadata (REv2), as far as it is used.
//
// Its strings may be parts of the header: to keep one for longer than the operation, clone it.
type Metadata struct {
	ToolInvocation, Correlated, Mnemonic, Target, Configuration string
	// Encoded is the whole message, for the worker; empty if it did not come with a request.
	Encoded string
}

// A Size is the size class on which an action starts. The zero Size starts it on the largest, with
// its own timeout, and the outcome there is final.
type Size struct {
	// Class is the wanted class. If it has no worker and is not declared, the action starts on the
	// next larger class with workers, or else on the largest.
	Class uint32
	// Timeout applies on Class; it is shorter than the action's own, or 0 for that. With Hedge the
	// action is not stopped after it. Instead the action also starts on the largest class, if a
	// worker is idle there then.
	Timeout time.Duration
	Hedge   bool
	// Expected is the expected duration there, 0 if it is unknown; Reason is for people.
	Expected time.Duration
	Reason   string
}

// Describe names an operation for people, by the client's names.
func (op *Operation) Describe() string {
	name := op.Request.Target
	if name == "" {
		name = op.Name
	}
	if i := op.Request.ToolInvocation; i != "" {
		name += " of invocation " + i
	}
	return name
}

// Attribute returns a value of a request, for patterns.
func (op *Operation) Attribute(name string) (string, bool) {
	switch name {
	case "operation":
		return op.Name, true
	case "action":
		return op.Digest.String(), true
	case "client":
		return op.Client, true
	case "user":
		return op.User, true
	case "instance":
		return op.Instance, true
	case "invocation":
		return op.Request.ToolInvocation, true
	case "correlated":
		return op.Request.Correlated, true
	case "mnemonic":
		return op.Request.Mnemonic, true
	case "target":
		return op.Request.Target, true
	}
	for _, p := range op.Platform.properties {
		if name == "platform."+p.Name {
			return p.Value, true
		}
	}
	return "", false
}
