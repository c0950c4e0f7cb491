package config

import (
	"github.com/forerunner-build/forerunner/auth"
)

// accessFields are the fields of a scheduler's configuration that say who calls, and what
// he may do.
func accessFields(o *auth.Options) map[string]func(node) error {
	return map[string]func(node) error{
		"tokens": func(n node) error {
			return n.list(func(n node) error {
				i, err := readIssuer(n)
				o.Issuers = append(o.Issuers, i)
				return err
			})
		},
		"access": func(n node) error {
			o.Rules = []auth.Rule{} // an empty list gives nothing to anybody
			return n.list(func(n node) error {
				r, err := readRule(n)
				o.Rules = append(o.Rules, r)
				return err
			})
		},
		"operations_belong_to": func(n node) error {
			if err := n.text((*string)(&o.Owning)); err != nil {
				return err
			}
			if err := o.Owning.Validate(); err != nil {
				return n.errorf("%w", err)
			}
			return nil
		},
	}
}

func readIssuer(n node) (i auth.Issuer, err error) {
	err = n.fill(&i, map[string]func(node) error{
		"issuer":       func(n node) error { return n.text(&i.Name) },
		"audience":     func(n node) error { return n.text(&i.Audience) },
		"keys_file":    func(n node) error { return n.text(&i.KeysFile) },
		"user_claim":   func(n node) error { return n.text(&i.UserClaim) },
		"user_prefix":  func(n node) error { return n.text(&i.UserPrefix) },
		"groups_claim": func(n node) error { return n.text(&i.GroupsClaim) },
		"leeway":       func(n node) error { return n.duration(&i.Leeway) },
	})
	return i, err
}

func readRule(n node) (r auth.Rule, err error) {
	var may []string
	_, err = n.fields(map[string]func(node) error{
		"users":     func(n node) error { return n.words(&r.Users) },
		"groups":    func(n node) error { return n.words(&r.Groups) },
		"claims":    func(n node) error { return n.texts(&r.Claims) },
		"anyone":    func(n node) error { return n.flag(&r.Anyone) },
		"instances": func(n node) error { return n.words(&r.Instances) },
		"may":       func(n node) error { return n.words(&may) },
	})
	if err != nil {
		return r, err
	}
	for _, right := range may {
		r.May = append(r.May, auth.Right(right))
	}
	if err := r.Validate(); err != nil {
		return r, n.errorf("%w", err)
	}
	return r, nil
}
