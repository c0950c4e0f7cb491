package policy

import (
	"errors"
	"fmt"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
)

// ActionProperties are the platform properties about how an action runs, not where: workers need
// not have them.
var ActionProperties = []string{networkProperty, dockerNetworkProperty, blockNetworkProperty}

// Whether an action has the network: ours, that of Google's service ("off",
// "standard") and that of Buildfarm ("true").
const (
	networkProperty       = "network"
	dockerNetworkProperty = "dockerNetwork"
	blockNetworkProperty  = "block-network"
)

// An Execution is how an action is run.
type Execution struct {
	Args, Env []string
	Nice      int
	Sandbox   sandbox.Policy
	Unasked   bool   // Sandbox.NoNetwork is the worker's default: the action does not set it
	Users     *Users // its possible users; Sandbox.User is one of these
}

// Defaults are the worker's settings.
type Defaults struct {
	// Sandboxed: commands run in a sandbox, without which network access cannot be denied.
	Sandboxed bool
	// Sandbox has the default rights of commands. Its User is one of Users.
	Sandbox  sandbox.Policy
	Users    *Users // users of commands; nil: the user of this process
	Policies *Set   // nil: none
}

// Check returns an error if d cannot work with so many positions.
func (d *Defaults) Check(positions int) error {
	if d.Sandbox.NoNetwork && !d.Sandboxed {
		return errors.New("the network can only be taken from commands in a sandbox")
	}
	return errors.Join(d.Users.Suffice(positions), d.Policies.Suffice(positions))
}

// Owners returns the possible owners of commands' files, besides the worker's user. It may contain
// duplicates.
func (d *Defaults) Owners() []vfs.Owner { return append(d.Users.owners(), d.Policies.owners()...) }

// Plan decides how a command is run for an action of a position. Its errors are for the client.
func (d *Defaults) Plan(args, env []string, platform *repb.Platform, position int) (*Execution, error) {
	e := &Execution{Args: args, Env: env, Sandbox: d.Sandbox, Unasked: d.Sandbox.NoNetwork, Users: d.Users}
	asked := properties(platform)
	off, said, err := asksNoNetwork(asked)
	if err != nil {
		return nil, fault.Errorf(codes.InvalidArgument, "%w", err)
	}
	if said {
		e.Sandbox.NoNetwork, e.Unasked = off, false
	}
	if p := d.Policies.choose(asked); p != nil {
		if err := p.apply(e, asked); err != nil {
			return nil, fault.Errorf(codes.InvalidArgument, "execution policy %q: %w", p.name, err)
		}
	}
	e.Sandbox.User = e.Users.At(position)
	if e.Sandbox.NoNetwork && !d.Sandboxed {
		return nil, fault.Errorf(codes.InvalidArgument,
			"action is to have no network, which a worker without a sandbox cannot take from it")
	}
	return e, nil
}

// asksNoNetwork reports what a platform asks for about the network, and whether it asks.
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
