package auth

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/forerunner-build/forerunner/cas/instance"
)

// A Right allows the calls of some RPCs.
type Right string

// The rights there are.
const (
	// Execute: run actions, follow and cancel them, read their output.
	Execute Right = "execute"
	// Read: blobs, results and records of actions.
	Read Right = "read"
	// Write: blobs.
	Write Right = "write"
	// WriteResults: the action cache.
	WriteResults Right = "write_results"
	// Work: take actions and report results, keep records of them. It includes Read, Write and
	// WriteResults.
	Work Right = "work"
	// Observe: see workers, queues and the operations of all instance names and users, and metrics.
	Observe Right = "observe"
	// Administer: drain workers, kill operations. It includes Observe.
	Administer Right = "administer"
)

// Rights returns all rights.
func Rights() []Right { return []Right{Execute, Read, Write, WriteResults, Work, Observe, Administer} }

// Choices returns the words for a right.
func (Right) Choices() (words []string) {
	for _, r := range Rights() {
		words = append(words, string(r))
	}
	return words
}

// includes reports whether r includes wanted.
func (r Right) includes(wanted Right) bool {
	switch {
	case r == wanted:
		return true
	case r == Work:
		return wanted == Read || wanted == Write || wanted == WriteResults
	}
	return r == Administer && wanted == Observe
}

// The groups that have rights by default.
const (
	WorkersGroup = "forerunner-workers"
	AdminsGroup  = "forerunner-admins"
)

// DefaultRules apply if only authentication is configured: authenticated callers may build and
// observe, workers may work, administrators may administer.
func DefaultRules() []Rule {
	return []Rule{
		{Users: []string{"*"}, May: []Right{Execute, Read, Write, Observe}},
		{Groups: []string{WorkersGroup}, May: []Right{Work}},
		{Groups: []string{AdminsGroup}, May: []Right{Administer}},
	}
}

// A Rule gives rights to callers that match all its conditions: one of Users, one of Groups and
// each of Claims. In all of these "*" stands for any text.
type Rule struct {
	Users  []string          `yaml:"users" doc:"users; * matches any text" example:"[\"*@example.com\", \"github:repo:acme/*\"]"`
	Groups []string          `yaml:"groups" doc:"groups" example:"[ci]"`
	Claims map[string]string `yaml:"claims" doc:"claims of the token; all of them must match" example:"{repository: acme/app, ref: refs/heads/main}"`
	// Anyone makes the rule match all callers, even unauthenticated ones.
	Anyone bool `yaml:"anyone" default:"false" doc:"whether the rule is for all callers, also without authentication; it then has no users, groups and claims"`
	// Instances are the instance names for which the rights are given, including those below, as
	// a/b is below a. None: all.
	Instances []string `yaml:"instances" doc:"instance names, with those below them; default all" example:"[main]"`
	May       []Right  `yaml:"may,required" min:"1" doc:"rights" example:"[execute, read, write]"`
}

// Validate returns an error if a rule is invalid.
func (r Rule) Validate() error {
	named := len(r.Users)+len(r.Groups)+len(r.Claims) > 0
	switch {
	case len(r.May) == 0:
		return errors.New("the rule gives no right: may is empty")
	case r.Anyone && named:
		return errors.New("the rule is for anyone and for some callers at once")
	case !r.Anyone && !named:
		return errors.New("the rule names no caller: set users, groups, claims or anyone")
	}
	for _, right := range r.May {
		if !slices.Contains(Rights(), right) {
			return fmt.Errorf("right %q is none of %q", right, Rights())
		}
		if len(r.Instances) > 0 && right.includes(Observe) {
			return fmt.Errorf("right %q is for all instance names together, and cannot be given for some", right)
		}
	}
	for _, name := range r.Instances {
		if err := instance.Check(name); err != nil {
			return fmt.Errorf("instances: %w", err)
		}
	}
	return nil
}

// A rule is a Rule that was made ready.
type rule struct {
	anyone        bool
	users, groups []*regexp.Regexp
	claims        map[string]*regexp.Regexp
	instances     []string
	may           []Right
}

func newRule(r Rule) (rule, error) {
	if err := r.Validate(); err != nil {
		return rule{}, err
	}
	n := rule{
		anyone: r.Anyone, users: globs(r.Users), groups: globs(r.Groups),
		claims: map[string]*regexp.Regexp{}, instances: r.Instances, may: r.May,
	}
	for name, pattern := range r.Claims {
		n.claims[name] = glob(pattern)
	}
	return n, nil
}

// glob compiles a pattern in which "*" stands for any text.
func glob(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`\A(?s:` + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, `.*`) + `)\z`)
}

func globs(patterns []string) (list []*regexp.Regexp) {
	for _, p := range patterns {
		list = append(list, glob(p))
	}
	return list
}

// fits reports whether one of the values fits one of the patterns, if there are any.
func fits(patterns []*regexp.Regexp, values ...string) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p *regexp.Regexp) bool {
		return slices.ContainsFunc(values, p.MatchString)
	})
}

// isFor reports whether the rule matches a caller, nil if unauthenticated.
func (r *rule) isFor(i *Identity) bool {
	if r.anyone || i == nil {
		return r.anyone
	}
	for name, pattern := range r.claims {
		if !slices.ContainsFunc(i.claims[name], pattern.MatchString) {
			return false
		}
	}
	return fits(r.users, i.User) && fits(r.groups, i.Groups...)
}

// A scope is for which instance names a call needs its right.
type scope int

const (
	one  scope = iota // the one in the request
	some              // any: the requested resource has a name that cannot be guessed
	all
)

// gives reports whether the rule gives a right to its callers.
func (r *rule) gives(right Right, s scope, name string) bool {
	if !slices.ContainsFunc(r.may, func(have Right) bool { return have.includes(right) }) {
		return false
	}
	if len(r.instances) == 0 || s == some {
		return true
	}
	// A program that resolves a name with dots would get another one.
	if s == all || instance.Check(name) != nil {
		return false
	}
	return slices.ContainsFunc(r.instances, func(prefix string) bool { return instance.Below(name, prefix) })
}

type rules []rule

// allow reports whether a caller has a right.
func (rs rules) allow(i *Identity, right Right, s scope, instance string) bool {
	if i != nil && i.trusted {
		return true
	}
	return slices.ContainsFunc(rs, func(r rule) bool { return r.isFor(i) && r.gives(right, s, instance) })
}

// satisfy reports whether a caller satisfies a need.
func (rs rules) satisfy(n need, i *Identity, instance string) bool {
	return n.right == "" || rs.allow(i, n.right, n.scope, instance) || n.or != "" && rs.allow(i, n.or, all, "")
}

// knows reports whether a caller has any right at all.
func (rs rules) knows(i *Identity) bool {
	return i != nil && i.trusted || slices.ContainsFunc(rs, func(r rule) bool { return r.isFor(i) })
}
