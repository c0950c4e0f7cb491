package core

import (
	"cmp"
	"time"
)

// A lineup has the tasks of one location in the order in which they came there: those of a queue, or the unmatched.
//
// A pass goes through it in parts, with events between them. What comes meanwhile is a part of it.
type lineup struct {
	// queue is whose tasks these are; nil: nobody's, they are unmatched.
	queue       *queue
	first, last *task
	count       int
	// cursor is what a pass looks at next; pass says whether there is one, again that another one has to follow it.
	cursor *task
	pass   pass
}

// A pass is how far it is looked at all tasks of a lineup.
type pass uint8

const (
	// over: there is none.
	over pass = iota
	// underway: what is from the cursor on is to be looked at.
	underway
	// again: and then all once more, as something has changed meanwhile.
	again
)

// push adds a task, at a time of Clock.Awake.
func (l *lineup) push(t *task, awake time.Duration) {
	t.ahead, t.behind, t.since = l.last, nil, awake
	if l.last != nil {
		t.since = max(t.since, l.last.since) // more may have been lost than there was
	}
	if l.last == nil {
		l.first = t
	} else {
		l.last.behind = t
	}
	l.last = t
	l.count++
	if l.pass != over && l.cursor == nil {
		l.cursor = t
	}
}

func (l *lineup) remove(t *task) {
	if l.cursor == t {
		l.cursor = t.behind
	}
	if t.ahead == nil {
		l.first = t.behind
	} else {
		t.ahead.behind = t.behind
	}
	if t.behind == nil {
		l.last = t.ahead
	} else {
		t.behind.ahead = t.ahead
	}
	t.ahead, t.behind = nil, nil
	l.count--
}

// all returns the tasks in order.
func (l *lineup) all() []*task {
	tasks := make([]*task, 0, l.count)
	for t := l.first; t != nil; t = t.behind {
		tasks = append(tasks, t)
	}
	return tasks
}

// byAge compares tasks by when they were asked for.
func byAge(t, u *task) int { return cmp.Compare(t.operations.first.age, u.operations.first.age) }

// has reports whether a task is there.
func (l *lineup) has(t *task) bool {
	if l.queue != nil {
		return t.queue() == l.queue
	}
	_, none := t.at.(unmatched)
	return none
}
