package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// savedGroup is nobody's. Exec forgets it.
const savedGroup = 65534

// A Box is the sandbox of a launcher process: what is there before the first command, and kept from one to
// the next. It is used by one goroutine at a time.
type Box struct {
	networks *networks
	// nofile and cgroupsFilter are of all commands.
	nofile        func() (unix.Rlimit, error)
	cgroupsFilter func() (*unix.SockFprog, error)
}

// Enter takes the calling process, which was born with CloneFlags, to where commands are to live. groups are
// the cgroups that they see.
func Enter(o *Options, groups []Cgroup) (*Box, error) {
	if !forksInto {
		return nil, errors.New("no sandbox on " + runtime.GOARCH)
	}
	if err := o.newRoot(groups); err != nil {
		return nil, err
	}
	// Whoever has the user and the group of a process, in all three forms, may set its
	// resource limits (prlimit(2)), which all later commands would inherit.
	if err := syscall.Setresgid(-1, -1, savedGroup); err != nil {
		return nil, fmt.Errorf("set saved group: %w", err)
	}
	return &Box{
		networks: newNetworks(o.FreshNetworks),
		nofile:   sync.OnceValues(inheritedFiles), cgroupsFilter: sync.OnceValues(ownCgroups),
	}, nil
}

// Child is what a command in a sandbox is made beside what syscall.ProcAttr says.
type Child struct {
	namespace int // of users, of which it is root; -1: it is the user of the ProcAttr
	// nofile is what it is to have of open files: the runtime raises that of this process, and lowers
	// it for the children that it forks itself.
	nofile unix.Rlimit
	filter *unix.SockFprog // of system calls, beside that of the thread that forks it; nil: none
}

// Child returns what commands of u are made. namespace is that of u, which stays the caller's; -1: it has none.
func (b *Box) Child(u *User, namespace int) (_ *Child, err error) {
	c := &Child{namespace: namespace}
	if c.nofile, err = b.nofile(); err != nil {
		return nil, fmt.Errorf("find the limit of open files: %w", err)
	}
	switch {
	case u.isRoot():
		c.filter, err = b.cgroupsFilter()
	case u.IDs > 0 && namespace < 0:
		err = errors.New("a user with ids has no namespace") // it would be the machine's
	}
	return c, err
}
