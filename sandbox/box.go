package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// savedGroup belongs to no one. Exec forgets it.
const savedGroup = 65534

// A Box is the sandbox of a launcher process: the parts that exist before the first command and are
// kept between commands. It is used by one goroutine at a time.
type Box struct {
	networks *networks
	nofile   unix.Rlimit                // of all commands
	core     unix.Rlimit                // as the launcher was started with
	filters  map[uint32]*unix.SockFprog // by the kinds of namespaces that commands cannot make
}

// Enter moves the calling process, which was started with CloneFlags, to the commands' root. groups
// are the cgroups that they see. terminals is the result of Options.Terminals, which the caller
// closes.
func Enter(o *Options, groups []Cgroup, terminals int) (*Box, error) {
	if !forksInto {
		return nil, fmt.Errorf("%w: no sandbox on %s", ErrUnavailable, runtime.GOARCH)
	}
	if err := o.newRoot(groups, terminals); err != nil {
		return nil, err
	}
	// A process with the same user and group as another, in all three forms, may set its resource
	// limits (prlimit(2)), which all later commands would inherit.
	if err := syscall.Setresgid(-1, -1, savedGroup); err != nil {
		return nil, fmt.Errorf("set saved group: %w", err)
	}
	core, err := forgoCoreDumps()
	if err != nil {
		return nil, err
	}
	// Not with the first command: whoever cancels that kills all children of this process.
	nofile, err := inheritedFiles()
	if err != nil {
		return nil, fmt.Errorf("find the limit of open files: %w", err)
	}
	return &Box{
		networks: newNetworks(o.FreshNetworks),
		nofile:   nofile, core: core, filters: map[uint32]*unix.SockFprog{},
	}, nil
}

// noCoreDump is the one limit with which the kernel starts no handler of core dumps, which would be
// the machine's and root outside (core(5), kernel.core_pattern): 0 only means that there is no
// file, and so does this.
const noCoreDump = 1

// forgoCoreDumps sets the limit for the calling process and its children.
func forgoCoreDumps() (was unix.Rlimit, err error) {
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		return was, fmt.Errorf("read the limit of core dumps: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: noCoreDump, Max: max(was.Max, noCoreDump)}); err != nil {
		return was, fmt.Errorf("set the limit of core dumps to %d: %w", noCoreDump, err)
	}
	return was, nil
}

// Settle does what has to be done between two commands. If it is not called, Thread.Enter does it.
func (b *Box) Settle() { b.networks.settle(time.Now()) }

// Child has the attributes of a sandboxed command beside syscall.ProcAttr.
type Child struct {
	namespace int // of users, of which it is root; -1: it is the user of the ProcAttr
	// nofile is its limit of open files: the runtime raises that of this process, and lowers it for
	// the children that it forks itself.
	nofile unix.Rlimit
	core   *unix.Rlimit // its limit of core dumps; nil: unchanged
	// networks is how many network namespaces the processes in namespace may make.
	networks []byte
	filter   *unix.SockFprog // of system calls, beside that of the thread that forks it; nil: none
}

// Child returns the attributes of commands of p. namespace is the user namespace of its user, which
// the caller closes; -1: it has none.
func (b *Box) Child(p *Policy, namespace int) (_ *Child, err error) {
	c := &Child{namespace: namespace, nofile: b.nofile, networks: []byte("0")}
	if p.allows(coreDumps) {
		c.core = &b.core
	}
	if p.allows(networkNamespaces) {
		c.networks = strconv.AppendInt(nil, mostNamespaces, 10)
	}
	if namespace < 0 {
		if p.User != nil && p.User.IDs > 0 {
			return nil, errors.New("a user with ids has no namespace") // it would be the machine's
		}
		c.filter, err = b.filter(p)
	}
	return c, err
}

// filter keeps a command that is a user of the machine from making some namespaces, nil from none.
// The machine's root owns its cgroups: without a cgroup namespace of his own he cannot mount any,
// also not in a user namespace.
func (b *Box) filter(p *Policy) (_ *unix.SockFprog, err error) {
	var flags uint32
	if p.User.isRoot() {
		flags |= unix.CLONE_NEWCGROUP
	}
	if !p.allows(networkNamespaces) {
		flags |= unix.CLONE_NEWNET
	}
	if flags == 0 {
		return nil, nil
	}
	if b.filters[flags] == nil {
		b.filters[flags], err = withoutNamespaces(flags)
	}
	return b.filters[flags], err
}
