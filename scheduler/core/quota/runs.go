package quota

import "container/heap"

// runs are those of one account in one kind: a heap with the first one to stop on top.
type runs struct {
	limit int
	list  []*Run
}

// Classes of runs: open runs may be stopped, exhausted ones only for the maximum of their own
// instance, closed ones never.
const (
	open = iota
	exhausted
	closed
)

func (h *runs) class(r *Run) int {
	switch {
	case r.marked || r.Shielded:
		return closed
	case r.Preempted >= h.limit:
		return exhausted
	}
	return open
}

// before reports whether a must be stopped before b, because it costs less.
func (h *runs) before(a, b *Run) bool {
	switch x, y := h.class(a), h.class(b); {
	case x != y:
		return x < y
	case a.Priority != b.Priority:
		return a.Priority > b.Priority
	case a.Busy != b.Busy:
		return a.Busy
	case !a.Started.Equal(b.Started):
		return a.Started.After(b.Started)
	}
	return a.order > b.order
}

func (h *runs) push(r *Run)   { heap.Push((*order)(h), r) }
func (h *runs) remove(r *Run) { heap.Remove((*order)(h), r.slot) }
func (h *runs) fix(r *Run)    { heap.Fix((*order)(h), r.slot) }

// order implements heap.Interface for runs.
type order runs

func (o *order) Len() int           { return len(o.list) }
func (o *order) Less(i, j int) bool { return (*runs)(o).before(o.list[i], o.list[j]) }

func (o *order) Swap(i, j int) {
	o.list[i], o.list[j] = o.list[j], o.list[i]
	o.list[i].slot, o.list[j].slot = i, j
}

func (o *order) Push(x any) {
	r := x.(*Run)
	r.slot = len(o.list)
	o.list = append(o.list, r)
}

func (o *order) Pop() any {
	last := len(o.list) - 1
	r := o.list[last]
	o.list[last] = nil
	o.list = o.list[:last]
	return r
}
