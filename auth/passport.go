package auth

import "slices"

// A Passport is the part of an Identity that rules use, in a form that can be stored.
type Passport struct {
	User   string              `json:"u"`
	Groups []string            `json:"g,omitempty"`
	Claims map[string][]string `json:"c,omitempty"`
}

// Passport returns the part of an Identity that these rules use: they give both the same rights.
func (i *Identity) Passport(list []Rule) Passport {
	p := Passport{User: i.User, Claims: map[string][]string{}}
	for _, r := range list {
		for _, pattern := range globs(r.Groups) {
			p.Groups = slices.AppendSeq(p.Groups, matching(i.Groups, pattern.MatchString))
		}
		for name, pattern := range r.Claims {
			p.Claims[name] = slices.AppendSeq(p.Claims[name], matching(i.claims[name], glob(pattern).MatchString))
		}
	}
	p.Groups = distinct(p.Groups)
	for name, values := range p.Claims {
		if p.Claims[name] = distinct(values); len(values) == 0 {
			delete(p.Claims, name)
		}
	}
	return p
}

// matching yields the texts for which fits returns true.
func matching(texts []string, fits func(string) bool) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for _, text := range texts {
			if fits(text) && !yield(text) {
				return
			}
		}
	}
}

func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}

// Identity returns the identity in the Passport.
func (p Passport) Identity() *Identity {
	return &Identity{User: p.User, Groups: p.Groups, claims: p.Claims}
}
