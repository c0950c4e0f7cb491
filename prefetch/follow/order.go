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

// maxTurns limits turns. A file has several if later mentions of it are read sooner.
const maxTurns = 4 * maxMentioned

// turns are a heap (heap.Interface): the first one is of the file that is read first.
type turns []turn

func (t *turns) add(w wish) {
	if len(*t) < maxTurns {
		heap.Push(t, turn{w.Path, w.order})
	}
}

// next returns the path of the first one.
func (t turns) next() string { return t[0].at }

func (t *turns) drop() { heap.Pop(t) }

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(t[i].order, t[j].order), cmp.Compare(t[i].at, t[j].at)) < 0
}

func (t turns) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

// Push implements heap.Interface.
func (t *turns) Push(x any) { *t = append(*t, x.(turn)) }

// Pop implements heap.Interface.
func (t *turns) Pop() any {
	last := (*t)[len(*t)-1]
	*t = (*t)[:len(*t)-1]
	return last
}
