package follow

import (
	"cmp"
	"container/heap"
)

// An order says when an action reads a file if it reads each mentioned file right where it is
// mentioned, as compilers and interpreters do: a smaller one is read sooner. It has two bytes for
// each file on the way from the command line: which of the mentions leads to the next one.
type order string

// maxOrder limits its bytes. Files that more others lead to have the order of one of them.
const maxOrder = 2 * 64

// below returns the order of the i-th mention of a file with the order o.
func (o order) below(i int) order {
	if len(o) == maxOrder {
		return o
	}
	return o + order([]byte{byte(i >> 8), byte(i)})
}

// A turn is a mentioned file that is to be requested.
type turn struct {
	at    string
	order order
}

// turns are in the order in which the files are read.
type turns []turn

func (t *turns) add(w wish) { heap.Push((*line)(t), turn{w.Path, w.order}) }

// next returns the path of the first one.
func (t turns) next() string { return t[0].at }

func (t *turns) drop() { heap.Pop((*line)(t)) }

// line implements heap.Interface.
type line []turn

func (l line) Len() int { return len(l) }
func (l line) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[i].order, l[j].order), cmp.Compare(l[i].at, l[j].at)) < 0
}
func (l line) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *line) Push(x any)   { *l = append(*l, x.(turn)) }

// Pop implements heap.Interface.
func (l *line) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}
