package auth

import (
	"context"
	"fmt"
)

// An Owning says to whom operations belong.
type Owning string

// The Ownings there are. The empty one is OfInstances.
const (
	// OfInstances: to all who may execute for the instance name of an operation.
	OfInstances Owning = "instance"
	// OfUsers: to who started it, as long as he may execute for its instance name. What somebody started who
	// was not known by name belongs to all who are not.
	OfUsers Owning = "user"
)

// Choices are the words for an Owning.
func (Owning) Choices() []string { return []string{string(OfInstances), string(OfUsers)} }

// Validate returns an error if there is no such Owning.
func (o Owning) Validate() error {
	switch o {
	case "", OfInstances, OfUsers:
		return nil
	}
	return fmt.Errorf("%q is neither %q nor %q", string(o), OfInstances, OfUsers)
}

// An Owner is whose an operation is: the user who started it, empty if he was not known, and the instance
// name that he started it for.
type Owner struct{ User, Instance string }

// Owns reports whether an operation is the caller's own, by the Owning of the Guard that let him through. Who
// has the right or for all instance names owns every operation. Without a Guard before the service everybody
// does. What the caller does not own has to be to him as what does not exist.
func Owns(ctx context.Context, o Owner, or Right) bool {
	c, ok := ctx.Value(callKey{}).(*call)
	return !ok || c.owns(o) || c.guard.rules.allow(c.who, or, all, "")
}

// OwnsBuild is Owns for what a user published of a build. If it belongs to no instance name, as when he may not execute for the one
// that his client named, it is his own all the same.
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

// name is the user's, empty for who is not known.
func (i *Identity) name() string {
	if i == nil {
		return ""
	}
	return i.User
}

// Allowed reports whether the caller has a right for an instance name that the call itself does not name, or
// for all. Without a Guard before the service everybody has.
func Allowed(ctx context.Context, right Right, instance string) bool {
	c, ok := ctx.Value(callKey{}).(*call)
	return !ok || c.guard.rules.allow(c.who, right, one, instance)
}

// rulesFor are the DefaultRules where operations belong to o: to observe is to see those of others.
func rulesFor(o Owning) []Rule {
	rules := DefaultRules()
	if o == OfUsers {
		rules[0].May = []Right{Execute, Read, Write}
	}
	return rules
}
