package request

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// An Operation is what a client asks for. State keeps it and never changes it;
// nor may the caller once it is submitted.
type Operation struct {
	// Name identifies the operation; the caller makes it unique.
	Name string
	// Instance is the client's instance name.
	Instance string
	// Digest is the action's.
	Digest digest.Digest
	// Action is what the worker is given; its timeout is set.
	Action *repb.Action
	// Platform is what a worker must have.
	Platform Platform
	// Private operations are never joined with others of the same action.
	Private bool
	// Priority and Expected order the operations of one invocation: the lowest
	// priority goes first (REv2, ExecutionPolicy), then what is thought to run
	// longest. Priorities also shift the shares of invocations; see package fair.
	Priority int32
	Expected time.Duration
	// User is who asks, Claims are what else is known of him; empty if he has not
	// said who he is.
	User   string
	Claims map[string]string
	// Client tells apart whose operations Config.MaxPerClient counts; empty: nobody's.
	Client string
	// Size says on which size class the action starts.
	Size Size

	// The rest is carried along: who asked, what the worker copies into the result besides, the
	// W3C trace context, and whatever else the caller knows of it. Each may be nil or empty.
	Request   Metadata
	Auxiliary []*anypb.Any
	Trace     map[string]string
	Owner     any
}

// Metadata is what a client says of itself and of what it wants an action for (REv2,
// RequestMetadata), as far as anything depends on it.
//
// Its strings may be parts of the header that they came in: to keep one for longer than the operation, clone it.
type Metadata struct {
	ToolInvocation, Correlated, Mnemonic, Target, Configuration string
	// Encoded is all of it, for the worker; empty if it did not come with a request.
	Encoded string
}

// A Size says on which size class an action starts. The zero Size leaves it on the
// largest, for its own timeout, and what happens there is final.
type Size struct {
	// Class is the one that is wanted. If it has no worker and is not declared the next larger
	// one that has is taken, else the largest.
	Class uint32
	// Timeout is in force on Class; it is shorter than the action's own, or 0 for that. With Hedge the action is
	// not stopped then, but started on the largest class, too, if a worker is idle there at the start.
	Timeout time.Duration
	Hedge   bool
	// Expected is how long the action is thought to run there, 0 if that is not known;
	// Reason is for people.
	Expected time.Duration
	Reason   string
}

// Describe names an operation for people, by what the client calls it.
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

// Attribute is what patterns see of what a client asks for.
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
