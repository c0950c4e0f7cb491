package worker

import (
	"fmt"
	"os/user"
	"runtime"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
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

// A NamedUser is whom commands run as.
type NamedUser struct {
	Name string // as it was asked for
	runner.User
}

// LookUpUser finds a user of this machine by name, with all its groups, or takes
// "UID:GID" as it is.
func LookUpUser(name string) (*NamedUser, error) {
	u := &NamedUser{Name: name}
	if uid, gid, ok := strings.Cut(name, ":"); ok {
		return u, parseIDs(u, uid, gid)
	}
	found, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("%w (give a user's name, or UID:GID)", err)
	}
	groups, err := found.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of user %s: %w", name, err)
	}
	for _, g := range groups {
		id, err := strconv.ParseUint(g, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("groups of user %s: %w", name, err)
		}
		u.Groups = append(u.Groups, uint32(id))
	}
	return u, parseIDs(u, found.Uid, found.Gid)
}

func parseIDs(u *NamedUser, uid, gid string) error {
	for _, id := range []struct {
		text string
		to   *uint32
	}{{uid, &u.UID}, {gid, &u.GID}} {
		n, err := strconv.ParseUint(id.text, 10, 31)
		if err != nil {
			return fmt.Errorf("user %q: %w", u.Name, err)
		}
		*id.to = uint32(n)
	}
	return nil
}

// owner is whom the input root of an action of u belongs to; nil is the worker's user.
func (u *NamedUser) owner() *vfs.Owner {
	if u == nil {
		return nil
	}
	return &vfs.Owner{UID: u.UID, GID: u.GID}
}

// runAs is u for the runner.
func (u *NamedUser) runAs() *runner.User {
	if u == nil {
		return nil
	}
	return &u.User
}

// execution is how an action is run.
type execution struct {
	args, env []string
	nice      int
	noNetwork bool
	user      *NamedUser // nil: the worker's
}

// plan decides how a command is run: what a policy says counts before what the
// platform says, and that before what the worker is set to.
func (o *Options) plan(c *command, platform *repb.Platform) (*execution, error) {
	e := &execution{args: c.args, env: c.env, noNetwork: o.NoNetwork, user: o.User}
	asked := properties(platform)
	off, said, err := asksNoNetwork(asked)
	if err != nil {
		return nil, failf(codes.InvalidArgument, "%w", err)
	}
	if said {
		e.noNetwork = off
	}
	if p := o.Policies.choose(asked); p != nil {
		if e.args, err = p.wrap(e.args, asked); err != nil {
			return nil, failf(codes.InvalidArgument, "execution policy %q: %w", p.name, err)
		}
		e.env, e.nice = p.addEnvironment(e.env), p.nice
		if p.network != nil {
			e.noNetwork = !*p.network
		}
		if p.user != nil {
			e.user = p.user
		}
	}
	if e.noNetwork && !o.Sandboxed {
		return nil, failf(codes.InvalidArgument,
			"action is to have no network, which a worker without a sandbox cannot take from it")
	}
	return e, nil
}

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

// as calls f on a thread whose access to files is u's, so that what f makes belongs
// to u. The thread keeps its identity otherwise.
func (u *NamedUser) as(f func() error) error {
	if u == nil {
		return f()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	gid, err := unix.SetfsgidRetGid(int(u.GID))
	if err != nil {
		return err
	}
	defer func() { _, _ = unix.SetfsgidRetGid(gid) }()
	uid, err := unix.SetfsuidRetUid(int(u.UID))
	if err != nil {
		return err
	}
	defer func() { _, _ = unix.SetfsuidRetUid(uid) }()
	return f()
}
