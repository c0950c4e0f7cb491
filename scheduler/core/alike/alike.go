package alike

import "iter"

// most bounds the groups at which one call of Serving looks, and the members of each.
const most = 64

// Groups are groups of P by name. The zero Groups is empty. A P without a name is in none.
type Groups[P comparable] struct {
	byName map[string]*group[P]
	list   []*group[P] // in any order
}

type group[P comparable] struct {
	name    string
	members map[P]struct{}
	at      int // in Groups.list
}

// Move takes p from the group with one name to that with another.
func (g *Groups[P]) Move(p P, from, to string) {
	if from == to {
		return
	}
	g.remove(p, from)
	if to != "" {
		g.add(p, to)
	}
}

func (g *Groups[P]) add(p P, name string) {
	in := g.byName[name]
	if in == nil {
		in = &group[P]{name, map[P]struct{}{}, len(g.list)}
		if g.byName == nil {
			g.byName = map[string]*group[P]{}
		}
		g.byName[name] = in
		g.list = append(g.list, in)
	}
	in.members[p] = struct{}{}
}

func (g *Groups[P]) remove(p P, name string) {
	in := g.byName[name]
	if in == nil {
		return
	}
	if delete(in.members, p); len(in.members) > 0 {
		return
	}
	last := g.list[len(g.list)-1]
	g.list[in.at], last.at = last, in.at
	g.list[len(g.list)-1] = nil
	g.list = g.list[:len(g.list)-1]
	delete(g.byName, name)
}

// Has reports whether p is in the group with that name, and the groups are consistent.
func (g *Groups[P]) Has(p P, name string) bool {
	in := g.byName[name]
	if in == nil {
		return name == ""
	}
	_, there := in.members[p]
	return there && g.list[in.at] == in && len(g.byName) == len(g.list)
}

// Serving returns the names of groups of which a member serves, and the number of their members.
func (g *Groups[P]) Serving(serves func(P) bool) iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, in := range g.list[:min(len(g.list), most)] {
			if in.serving(serves) && !yield(in.name, len(in.members)) {
				return
			}
		}
	}
}

func (in *group[P]) serving(serves func(P) bool) bool {
	looks := 0
	for p := range in.members {
		if serves(p) {
			return true
		}
		if looks++; looks == most {
			break
		}
	}
	return false
}
