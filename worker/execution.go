package worker

import (
	"fmt"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// ActionProperties are the platform properties that say how an action is run, not
// where: a worker need not have them to be sent the action.
var ActionProperties = []string{networkProperty, dockerNetworkProperty, blockNetworkProperty}

// Whether an action has the network: ours, that of Google's service ("off",
// "standard") and that of Buildfarm ("true").
const (
	networkProperty       = "network"
	dockerNetworkProperty = "dockerNetwork"
	blockNetworkProperty  = "block-network"
)

// execution is how an action is run.
type execution struct {
	args, env []string
	nice      int
	sandbox   sandbox.Policy
	unasked   bool   // sandbox.NoNetwork is what this worker is set to: the action said nothing
	users     *Users // whom it may run as; sandbox.User is one of these
}

// plan decides how a command is run: what a policy says counts before what the
// platform says, and that before what the worker is set to.
func (o *Options) plan(c *command, platform *repb.Platform, position int) (*execution, error) {
	e := &execution{args: c.args, env: c.env, unasked: o.NoNetwork, users: o.Users}
	e.sandbox.NoNetwork = o.NoNetwork
	asked := properties(platform)
	off, said, err := asksNoNetwork(asked)
	if err != nil {
		return nil, fault.Errorf(codes.InvalidArgument, "%w", err)
	}
	if said {
		e.sandbox.NoNetwork, e.unasked = off, false
	}
	if p := o.Policies.choose(asked); p != nil {
		if e.args, err = p.wrap(e.args, asked); err != nil {
			return nil, fault.Errorf(codes.InvalidArgument, "execution policy %q: %w", p.name, err)
		}
		e.env, e.nice = p.addEnvironment(e.env), p.nice
		if p.network != nil {
			e.sandbox.NoNetwork, e.unasked = !*p.network, false
		}
		e.sandbox.Allow = p.allow
		if p.users != nil {
			e.users = p.users
		}
	}
	e.sandbox.User = e.users.at(position)
	if e.sandbox.NoNetwork && !o.Sandboxed {
		return nil, fault.Errorf(codes.InvalidArgument,
			"action is to have no network, which a worker without a sandbox cannot take from it")
	}
	return e, nil
}

// noNetworkHint is what clients are told of a command that failed without a network that nobody took
// from it on purpose.
const noNetworkHint = "the command had no network, as is the default here; if it needs the network, " +
	"give the action the platform property network=on"

// asksNoNetwork reports what a platform says about the network, and whether it does.
func asksNoNetwork(properties map[string]string) (off, said bool, err error) {
	for _, name := range ActionProperties {
		value, ok := properties[name]
		if !ok {
			continue
		}
		switch {
		case name == blockNetworkProperty:
			block, err := strconv.ParseBool(value)
			if err != nil {
				return false, true, fmt.Errorf("platform property %s is %q, neither true nor false", name, value)
			}
			return block, true, nil
		case value == "off":
			return true, true, nil
		case value == "on" || name == dockerNetworkProperty: // "standard", or a network's name
			return false, true, nil
		default:
			return false, true, fmt.Errorf("platform property %s is %q, neither on nor off", name, value)
		}
	}
	return false, false, nil
}
