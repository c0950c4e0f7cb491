package fair

import "slices"

// An avoided is the entries below a backlog whose items avoid the same group of workers.
type avoided struct {
	// n counts them, below those here.
	n int
	// here are those of a leaf. They are not in backlog.entries.
	here ranking
}

// avoids returns the group of workers that do not get an item; empty: all may.
func (t *Tree) avoids(it *Item) string {
	if t.avoid == nil {
		return ""
	}
	return t.avoid(it)
}

// count adds to the entries of a group that wait here and below; those that avoid nobody have the
// empty one.
func (s *backlog) count(n int, group string) {
	s.queued += n
	if group == "" {
		return
	}
	of := s.of(group)
	if of.n += n; of.n == 0 {
		delete(s.avoided, group)
	}
}

// of returns the entries that avoid a group, made if need be.
func (s *backlog) of(group string) *avoided {
	of := s.avoided[group]
	if of == nil {
		if s.avoided == nil {
			s.avoided = map[string]*avoided{}
		}
		of = &avoided{}
		s.avoided[group] = of
	}
	return of
}

// ranking returns that of the entries of a leaf that avoid a group.
func (s *backlog) ranking(group string) *ranking {
	if group == "" {
		return &s.entries
	}
	return &s.of(group).here
}

// has reports whether something waits here or below that does not avoid a group.
func (s *backlog) has(group string) bool {
	if of := s.avoided[group]; of != nil {
		return s.queued > of.n
	}
	return s.queued > 0
}

// first returns the first entry of a leaf that does not avoid a group; nil if there is none.
func (s *backlog) first(group string) *sortKey {
	if len(s.avoided) == 0 {
		return s.entries.first()
	}
	return s.firstFor(group)
}

func (s *backlog) firstFor(group string) *sortKey {
	first := s.entries.first()
	for other, of := range s.avoided {
		x := of.here.first()
		if other != group && x != nil && (first == nil || x.before(*first)) {
			first = x
		}
	}
	return first
}

// some returns the first entries of a leaf that do not avoid a group, in order, a limited number of
// them.
func (s *backlog) some(most int, group string) (list []sortKey) {
	add := func(r *ranking) {
		left := most
		for key := range r.all() {
			if left == 0 {
				break
			}
			left--
			list = append(list, key)
		}
	}
	add(&s.entries)
	for other, of := range s.avoided {
		if other != group {
			add(&of.here)
		}
	}
	if len(s.avoided) > 0 {
		slices.SortFunc(list, func(a, b sortKey) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
	}
	return list[:min(most, len(list))]
}
