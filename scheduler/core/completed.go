package core

import "time"

// kept names an operation that is done. All are kept equally long, so that one timer is
// enough for them.
type kept struct {
	name  string
	until time.Time
}

// keep keeps an operation that is done, for those who ask for it once more.
func (s *State) keep(o *operation) {
	k := kept{o.spec.Name, s.now.Add(s.cfg.KeepCompleted)}
	if len(s.completed) == 0 {
		s.timers.set(&s.expiry, k.until)
	}
	s.completed = append(s.completed, k)
	if len(s.completed) > s.cfg.MaxCompleted {
		s.forgetOldest()
	}
}

func (s *State) forgetOldest() {
	delete(s.operations, s.completed[0].name)
	s.completed[0] = kept{}
	s.completed = s.completed[1:]
}

// keepLonger keeps all that is kept for so much longer, but not longer than what will be
// done from now on.
func (s *State) keepLonger(d time.Duration) {
	limit := s.now.Add(s.cfg.KeepCompleted)
	for i := range s.completed {
		k := &s.completed[i]
		if k.until = k.until.Add(d); k.until.After(limit) {
			k.until = limit
		}
	}
	if len(s.completed) > 0 {
		s.timers.set(&s.expiry, s.completed[0].until)
	}
}

// expiring is the end of the time for which done operations are kept.
type expiring struct{}

func (expiring) due(s *State) {
	for len(s.completed) > 0 && !s.completed[0].until.After(s.now) {
		s.forgetOldest()
	}
	if len(s.completed) > 0 {
		s.timers.set(&s.expiry, s.completed[0].until)
	}
}
