package sandbox

import (
	"errors"
	"slices"
	"strings"
	"syscall"
)

// Policy has the rights of one command. Without a sandbox only the ids of User count.
type Policy struct {
	User *User // its user; nil: the worker's
	// NoNetwork leaves the command only a private loopback device.
	NoNetwork bool
	// Allow are rights that commands lack by default, in the words of CheckAllowed, sorted.
	Allow []string
}

func (p *Policy) allows(word string) bool { return slices.Contains(p.Allow, word) }

// User is the user of a command.
type User struct {
	UID, GID uint32
	Groups   []uint32 // supplementary
	// IDs, if not 0, makes the command root in its own user namespace, whose ids from 0 on are
	// those from UID and GID on, so many of each: it may become these users and groups, and has no
	// rights of root outside. It needs a sandbox.
	IDs uint32
}

// CheckWithout returns an error if p needs a sandbox.
func (p *Policy) CheckWithout() error {
	switch {
	case p.User != nil && p.User.IDs > 0:
		return errors.New("a user namespace needs a sandbox")
	case p.NoNetwork:
		return errors.New("the network can only be taken from a command in a sandbox")
	}
	return nil
}

// Thread names the Thread that forks commands of p: policies with the same name share one. A Thread
// cannot change its rights, but the policies of a farm need few different ones.
func (p *Policy) Thread() string { return strings.Join(p.Allow, " ") }

// Credential returns u for the standard library, nil for the worker's user.
func (u *User) Credential() *syscall.Credential {
	if u == nil {
		return nil
	}
	return &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
}

// isRoot reports whether u is the machine's root.
func (u *User) isRoot() bool {
	return u == nil || u.UID == 0 && u.IDs == 0
}
