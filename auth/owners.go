package auth

import (
	"context"
	"fmt"
)

// An Owning defines the owners of operations.
type Owning string

// The Ownings there are. The empty one is OfInstances.
const (
	// OfInstances: they belong to all callers that may execute for the operation's instance name.
	OfInstances Owning = "instance"
	// OfUsers: they belong to the user that started them, while it may execute for the instance
	// name. Operations of unauthenticated callers belong to all such callers.
	OfUsers Owning = "user"
)

// Choices returns the words for an Owning.
func (Owning) Choices() []string { return []string{string(OfInstances), string(OfUsers)} }

// Validate returns an error if there is no such Owning.
func (o Owning) Validate() error {
	switch o {
	case "", OfInstances, OfUsers:
		return nil
	}
	return fmt.Errorf("%q is neither %q nor %q", string(o), OfInstances, OfUsers)
}

// An Owner is the owner of an operation: the user that started it, empty if unauthenticated, and
// the instance name.
type Owner struct{ User, Instance string }

// Owns reports whether an operation is the caller's own, by the Owning of its Guard. A caller with
// the right or for all instance names owns every operation. Without a Guard every caller does. To
// other callers an operation must look as if it did not exist.
func Owns(ctx context.Context, o Owner, or Right) bool {
	c, ok := ctx.Value(callKey{}).(*call)
	return !ok || c.owns(o) || c.guard.rules.allow(c.who, or, all, "")
}

// OwnsBuild is Owns for the build events of a user. If they belong to no instance name, as when the
// user may not execute for the client's one, they are still the user's own.
func OwnsBuild(ctx context.Context, o Owner, or Right) bool {
	c, ok := ctx.Value(callKey{}).(*call)
	return ok && o.Instance == "" && o.User != "" && o.User == c.who.name() || Owns(ctx, o, or)
}

func (c *call) owns(o Owner) bool {
	if !c.guard.rules.allow(c.who, Execute, one, o.Instance) {
		return false
	}
	return c.guard.owning != OfUsers || c.who.name() == o.User
}

// name is the user's, empty if unauthenticated.
func (i *Identity) name() string {
	if i == nil {
		return ""
	}
	return i.User
}

// Allowed reports whether the caller has a right for all instance names, or for an instance name
// that the call itself does not name. Without a Guard every caller has.
func Allowed(ctx context.Context, right Right, instance string) bool {
	c, ok := ctx.Value(callKey{}).(*call)
	return !ok || c.guard.rules.allow(c.who, right, one, instance)
}

// rulesFor returns the DefaultRules for Owning o: if operations belong to users, only observers see
// the operations of others.
func rulesFor(o Owning) []Rule {
	rules := DefaultRules()
	if o == OfUsers {
		rules[0].May = []Right{Execute, Read, Write}
	}
	return rules
}
